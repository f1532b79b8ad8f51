"""Lengths in tokens: by phase, against what was asked for, and one model's against another's."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.intervals import Estimate, mean_interval
from elastic_core.statistics.problems import column_of, common_problems, problem_table
from elastic_core.trajectory import ThinkFinish


class PhaseTokens(NamedTuple):
    """Mean tokens per trajectory. `total` is thinking and solution, all that was sampled; forced ones are apart."""

    think: Estimate
    solution: Estimate
    total: Estimate
    forced: Estimate


def sampled_tokens() -> pl.Expr:
    """Tokens that the model sampled in a row: thinking and solution."""
    return pl.col("think_tokens") + pl.col("solution_tokens")


def forced_close() -> pl.Expr:
    """Whether we wrote a row's think-end: the budget was spent, or the model stopped inside its thought.

    A vanilla or unconstrained response that stops there is left as it is, and is not counted.
    """
    return pl.col("think_finish").is_in([ThinkFinish.FORCED, ThinkFinish.END_OF_TEXT]) & (pl.col("forced_tokens") > 0)


def tokens_by_phase(rows: pl.DataFrame) -> PhaseTokens:
    """Mean over problems of the mean tokens of their samples, phase by phase, with t-intervals over problems.

    Args:
        rows: of one cell, with the token columns of the trajectory table.

    Raises:
        ValueError: on no rows, or a missing count.
    """
    columns = ["think_tokens", "solution_tokens", "tokens", "forced_tokens"]
    problems = problem_table(rows.with_columns(tokens=sampled_tokens()), columns)
    return PhaseTokens(*(mean_tokens(problems, column) for column in columns))


def forced_fraction(rows: pl.DataFrame) -> Estimate:
    """The share of trajectories whose think-end we wrote (`forced_close`), mean over problems, interval as avg@k's.

    Raises:
        ValueError: on no rows, or a missing value.
    """
    return mean_score(problem_table(rows.with_columns(forced=forced_close()), ["forced"]), "forced")


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
    a, b = common_problems(a, b)
    top, bottom = (column_of(problem_table(rows, [column]), column) for rows in (a, b))
    if bottom.mean() == 0:
        raise ValueError(f"the mean {column} to divide by is zero")
    ratio = top.mean() / bottom.mean()
    low, high = mean_interval((top - ratio * bottom) / bottom.mean())
    return Estimate(float(ratio), float(ratio + low), float(ratio + high), len(top), a.height + b.height)
