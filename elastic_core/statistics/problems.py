"""From rows to problems: the one place that says what a cluster is.

Samples of one problem are not independent, so every statistic sees a problem once, however often it was sampled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

LADDER = ("model", "benchmark", "strategy", "solution_budget")
"""What the thinking budgets of a ladder have in common."""
FREE = "unconstrained"
"""The strategy without a budget, which the others are held against."""


def problem_table(rows: pl.DataFrame, columns: Sequence[str], by: Sequence[str] = ()) -> pl.DataFrame:
    """One row per problem: `by`, `problem`, `num_samples`, and the mean over its samples of each of `columns`.

    Sorted by `by` and problem. Problem ids are unique only within a benchmark, so rows of several need `by`.

    Raises:
        ValueError: on no rows, or a missing value.
    """
    for column in columns:
        if rows.is_empty():
            raise ValueError(f"mean {column} of no rows; expected at least one sample")
        if rows[column].null_count():
            raise ValueError(f"{rows[column].null_count()} of {rows.height} rows have no {column}")
    keys = [*by, "problem"]
    means = [pl.col(column).mean() for column in columns]
    return rows.group_by(keys).agg(pl.len().cast(pl.Int64).alias("num_samples"), *means).sort(keys)


def check_scores(rows: pl.DataFrame) -> None:
    """Raises ValueError where a score lies outside [0, 1]."""
    if not rows["score"].is_between(0, 1).all():
        raise ValueError("column score holds values outside [0, 1]")


def common_problems(a: pl.DataFrame, b: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both tables, on the problems that both have.

    Raises:
        ValueError: when they have none in common.
    """
    common_a, common_b = a.join(b, on="problem", how="semi"), b.join(a, on="problem", how="semi")
    if common_a.is_empty():
        raise ValueError(f"nothing to pair: {a.height} and {b.height} rows have no problem in common")
    return common_a, common_b


def column_of(problems: pl.DataFrame, column: str) -> np.ndarray:
    """A column of a problem table, shape (problems,)."""
    return problems[column].cast(pl.Float64).to_numpy()
