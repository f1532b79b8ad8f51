"""Whether a model's responses can be read at all: without answers every accuracy is 0, and says nothing of budgets."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from elastic_core.rewards.grade import UNANSWERED
from elastic_core.trajectory import ThinkFinish


class Readable(NamedTuple):
    """Of all responses of one model, under every strategy and budget.

    Attributes:
        num_answered: in which the grader found an answer.
        num_thoughts: that had a phase of thinking.
        num_closed: whose thinking the model ended by itself.
    """

    model: str
    num_trajectories: int
    num_answered: int
    num_thoughts: int
    num_closed: int


def readable(rows: pl.DataFrame) -> list[Readable]:
    """Counts of each model of a trajectory table, by name."""
    finish = pl.col("think_finish")
    counts = rows.group_by("model").agg(
        pl.len().alias("num_trajectories"),
        (~pl.col("grade_status").is_in(UNANSWERED)).sum().alias("num_answered"),
        (finish != ThinkFinish.NOT_APPLICABLE).sum().alias("num_thoughts"),
        (finish == ThinkFinish.CLOSED).sum().alias("num_closed"),
    )
    return [Readable(**row) for row in counts.sort("model").iter_rows(named=True)]


def unreadable(found: Readable) -> list[str]:
    """A sentence for each reason why little can be read off the model's accuracies, with what to do."""
    sentences = []
    if found.num_answered == 0:
        sentences.append(
            f"None of the {found.num_trajectories:,} responses of {found.model} holds an answer that the grader can "
            "read: read some of them; the model may need fine-tuning to end with its answer, or more solution tokens."
        )
    if found.num_thoughts and found.num_closed == 0:
        sentences.append(
            f"None of the {found.num_thoughts:,} thoughts of {found.model} was closed by the model: every answer "
            "follows a cut; give larger thinking budgets, or a model that was trained to think between these markers."
        )
    return sentences
