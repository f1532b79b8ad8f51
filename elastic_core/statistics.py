"""Accuracy over repeated samples, with intervals that know samples of one problem are not independent.

Everything here sees rows through `problem_means`: a problem is a cluster, and counts once however often it was
sampled. Rows are those of one benchmark, since problem ids are unique only within one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

Z95 = 1.959964
"""The standard normal quantile at 0.975."""


class Estimate(NamedTuple):
    """A value with its 95 % interval, and what it was measured on: problems, and rows of the table in all."""

    mean: float
    low: float
    high: float
    num_problems: int
    num_trajectories: int


def problem_means(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """Mean of `column` per problem, ordered by problem: columns `problem` and `mean`.

    The one place that says what a cluster is.

    Raises:
        ValueError: on no rows, or a missing value.
    """
    if rows.is_empty():
        raise ValueError(f"mean {column} of no rows; expected at least one sample")
    if rows[column].null_count():
        raise ValueError(f"{rows[column].null_count()} of {rows.height} rows have no {column}")
    return rows.group_by("problem").agg(pl.col(column).mean().alias("mean")).sort("problem")


def avg_at_k(rows: pl.DataFrame, column: str = "score") -> Estimate:
    """avg@k: the mean over problems of the mean score over their k samples, scores in [0, 1].

    The interval is Wilson's score interval (Wilson 1927) at the effective sample size n = p(1 - p) / var, where var is
    the between-problem variance of the mean (clusters are problems; Dean and Pagano 2015, "Evaluating confidence
    interval methods for binomial proportions in clustered surveys").

    The effective size is computed with two pseudo-problems added, one all right and one all wrong, in the spirit of
    Agresti and Coull (1998). Near 0 and 1 a handful of problems carries the whole variance, and without them the
    interval covers as little as 86 % (30 problems x 16 samples, intra-problem correlation 0.5, p = 0.05). With them
    it covers 94 % or more for 30 problems and up, and all-right and all-wrong need no case of their own. The price is
    an interval too wide where samples of one problem are nearly independent.

    Args:
        rows: with `problem` and `column`; every row is one sample.

    Raises:
        ValueError: on no rows, or a score that is missing or outside [0, 1].
    """
    means = problem_means(rows, column)["mean"].to_numpy()
    if not rows[column].is_between(0, 1).all():
        raise ValueError(f"column {column} holds values outside [0, 1]")
    padded = np.append(means, (0.0, 1.0))
    variance = padded.var(ddof=1) / len(means)
    # No clustering can make samples worth more than if they were all independent.
    effective = min(float(padded.mean() * (1 - padded.mean()) / variance), rows.height)
    mean = float(means.mean())
    return Estimate(mean, *wilson(mean, effective), len(means), rows.height)


def wilson(p: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a proportion p observed on n (effective) samples."""
    centre = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * float(np.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2)))
    # p itself is always inside; the bounds guard against rounding at 0 and 1.
    return max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half))


def paired_difference(a: pl.DataFrame, b: pl.DataFrame, column: str = "score") -> Estimate:
    """avg@k of `a` minus avg@k of `b`, over the problems both have, scores in [0, 1].

    The interval combines the two avg@k intervals with the correlation of the problem means (MOVER: Zou and Donner
    2008; Newcombe 1998, "Improved confidence intervals for the difference between binomial proportions based on
    paired data"). Unlike a t-interval of the differences it keeps its width when every problem agrees, as between a
    model that is nearly always wrong and one that is nearly always right.

    Raises:
        ValueError: when no problem is in both, or as `avg_at_k`.
    """
    a, b = _common(a, b)
    right, left = avg_at_k(a, column), avg_at_k(b, column)
    shared = _correlation(_values(a, column), _values(b, column))
    below, above = (right.mean - right.low, left.high - left.mean), (right.high - right.mean, left.mean - left.low)
    difference = right.mean - left.mean
    return Estimate(
        difference,
        difference - _combined(*below, shared),
        difference + _combined(*above, shared),
        right.num_problems,
        right.num_trajectories + left.num_trajectories,
    )


def paired_ratio(a: pl.DataFrame, b: pl.DataFrame, column: str) -> Estimate:
    """Mean of `column` in `a` over its mean in `b`, over the problems both have; for lengths in tokens.

    The interval linearises the ratio (delta method; Cochran 1977, chapter 6).

    Raises:
        ValueError: when no problem is in both, or the mean in `b` is zero.
    """
    a, b = _common(a, b)
    top, bottom = _values(a, column), _values(b, column)
    if bottom.mean() == 0:
        raise ValueError(f"the mean {column} to divide by is zero")
    ratio = top.mean() / bottom.mean()
    low, high = mean_interval((top - ratio * bottom) / bottom.mean())
    return Estimate(float(ratio), float(ratio + low), float(ratio + high), len(top), a.height + b.height)


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % t-interval of the mean of one value per problem, shape (problems,). One problem bounds nothing."""
    if len(values) < 2:
        return -np.inf, np.inf
    half = t95(len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def t95(degrees: int) -> float:
    """Student's t quantile at 0.975, by its expansion in 1 / degrees (Abramowitz and Stegun 26.7.5).

    Within 0.3 % from 4 degrees of freedom up, and below the true value by 3 % at 2.
    """
    z, v = Z95, degrees
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def _common(a: pl.DataFrame, b: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both, on the problems that both have."""
    common_a, common_b = a.join(b, on="problem", how="semi"), b.join(a, on="problem", how="semi")
    if common_a.is_empty():
        raise ValueError(f"nothing to pair: {a.height} and {b.height} rows have no problem in common")
    return common_a, common_b


def _values(rows: pl.DataFrame, column: str) -> np.ndarray:
    return problem_means(rows, column)["mean"].to_numpy()


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's, and 0 where one of them is constant: nothing is known to be shared."""
    return 0.0 if np.ptp(a) == 0 or np.ptp(b) == 0 else float(np.corrcoef(a, b)[0, 1])


def _combined(a: float, b: float, correlation: float) -> float:
    """Half-width of a difference from the half-widths a and b of its terms."""
    return float(np.sqrt(max(a**2 + b**2 - 2 * correlation * a * b, 0.0)))
