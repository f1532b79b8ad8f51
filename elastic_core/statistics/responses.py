"""What responses are like: their lengths in tokens, who closed their thoughts, and whether they can be read at all."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from elastic_core.rewards.grade import UNANSWERED
from elastic_core.statistics.estimates import Estimate, column_of, mean_interval, paired_tables, problem_table
from elastic_core.trajectory import ThinkFinish


def sampled_tokens() -> pl.Expr:
    """Tokens that the model sampled in a row: thinking and solution."""
    return pl.col("think_tokens") + pl.col("solution_tokens")


def forced_close() -> pl.Expr:
    """Whether we wrote a row's think-end: the budget was spent, or the model stopped inside its thought.

    A vanilla or unconstrained response that stops there is left as it is, and is not counted.
    """
    return pl.col("think_finish").is_in([ThinkFinish.FORCED, ThinkFinish.END_OF_TEXT]) & (pl.col("forced_tokens") > 0)


def length_error(rows: pl.DataFrame) -> Estimate:
    """Sampled tokens minus the n = t + s that was asked for, mean over problems, with its t-interval; in tokens.

    It is signed: above zero, responses are longer than asked. L1's strategies ask for n in the prompt (Aggarwal and
    Welleck 2025).

    Raises:
        ValueError: on no rows, a missing count, or an unlimited budget, which asks for no length.
    """
    asked = pl.col("think_budget") + pl.col("solution_budget")
    problems = problem_table(rows.with_columns(error=sampled_tokens() - asked), ["error"])
    values = column_of(problems, "error")
    return Estimate(float(values.mean()), *mean_interval(values), len(values), rows.height)


def mean_tokens(problems: pl.DataFrame, column: str) -> Estimate:
    """Mean over problems of a count, 0 or more, with its t-interval, from one cell's `problem_table`.

    Where every problem agrees, as when every thought fills its budget, the interval has no width.
    """
    values = column_of(problems, column)
    low, high = mean_interval(values)
    return Estimate(float(values.mean()), max(low, 0.0), high, len(values), int(problems["num_samples"].sum()))


def paired_ratio(a: pl.DataFrame, b: pl.DataFrame, column: str) -> Estimate:
    """Mean of `column` in `a` over its mean in `b`, over the problems both have; for lengths in tokens.

    The interval linearises the ratio (delta method; Cochran 1977, chapter 6).

    Raises:
        ValueError: when no problem is in both, or the mean in `b` is zero.
    """
    tables = paired_tables(a, b, [column])
    top, bottom = (column_of(problems, column) for problems in tables)
    if bottom.mean() == 0:
        raise ValueError(f"the mean {column} to divide by is zero")
    ratio = top.mean() / bottom.mean()
    low, high = mean_interval((top - ratio * bottom) / bottom.mean())
    trajectories = sum(int(problems["num_samples"].sum()) for problems in tables)
    return Estimate(float(ratio), float(ratio + low), float(ratio + high), len(top), trajectories)


class Readable(NamedTuple):
    """Of all responses of one model, under every strategy and budget. Without answers every accuracy is 0, and says
    nothing of budgets.

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
