"""Grading a finished table once more: a better grader needs no new tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from elastic_core.data.problems import Problem
from elastic_core.rewards import Answer, grade_many
from elastic_core.rewards.response import ResponseText
from elastic_core.sweep.table import Table

CHANGES = pl.Schema({"before": pl.String(), "after": pl.String(), "rows": pl.UInt32()})
"""How many rows had one status and now have another (or the same)."""

Problems = Mapping[str, Mapping[str, Problem]]
"""Problems by benchmark and id."""


def regrade(
    store: Table,
    problems: Problems,
    on_rows: Callable[[int], None] = lambda rows: None,
    before_change: Callable[[], None] = lambda: None,
) -> pl.DataFrame:
    """Rewrite answer, score and status of every row, shard by shard; texts and tokens stay.

    An interrupted run leaves whole shards, some graded anew and some not; the same call finishes them.

    Args:
        on_rows: called with the number of rows of each shard that is done.
        before_change: called before each shard whose grades change is written, while no sweep writes the table.

    Returns:
        `CHANGES`.

    Raises:
        KeyError: a row of a problem that is not given.
        TableLocked: when a sweep is writing the table.
        GradingFailed: when the grader failed; what was rewritten before stays.
    """
    changes = [pl.DataFrame(schema=CHANGES)]

    def anew(rows: pl.DataFrame) -> pl.DataFrame:
        graded = grade_rows(rows, problems)
        statuses = pl.DataFrame({"before": rows["grade_status"], "after": graded["grade_status"]})
        changes.append(statuses.group_by("before", "after").agg(pl.len().alias("rows")))
        on_rows(rows.height)
        if not graded.equals(rows):
            before_change()
        return graded

    store.rewrite(anew)
    return pl.concat(changes).group_by("before", "after").agg(pl.col("rows").sum()).sort("before", "after")


def grade_rows(rows: pl.DataFrame, problems: Problems) -> pl.DataFrame:
    """The rows with answer, score and status as the grader gives them now.

    Raises:
        KeyError: a row of a problem that is not given.
    """
    texts = rows.select("benchmark", "problem", "think_finish", "thinking", "solution")
    grades = grade_many(
        [
            _answer(problems[benchmark][problem], ResponseText(thinking, solution), think_finish)
            for benchmark, problem, think_finish, thinking, solution in texts.iter_rows()
        ]
    )
    columns: dict[str, Sequence[object]] = {
        "answer": [graded.answer for graded in grades],
        "score": [graded.score for graded in grades],
        "grade_status": [str(graded.status) for graded in grades],
    }
    return rows.with_columns(pl.Series(name, values, rows.schema[name]) for name, values in columns.items())


def _answer(problem: Problem, text: ResponseText, think_finish: str) -> Answer:
    return Answer(problem.grader, text.graded(think_finish), problem.truth)
