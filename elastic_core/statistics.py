"""Accuracy over repeated samples, with intervals that know samples of one problem are not independent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

Z95 = 1.959964
"""The standard normal quantile at 0.975."""


class Estimate(NamedTuple):
    """A mean over problems with its 95 % interval, and what it was measured on."""

    mean: float
    low: float
    high: float
    num_problems: int
    num_samples: int


def avg_at_k(rows: pl.DataFrame, column: str = "score") -> Estimate:
    """avg@k: the mean over problems of the mean score over their k samples, scores in [0, 1].

    The interval is Wilson's score interval (Wilson 1927) at the effective sample size n = p(1 - p) / var, where var is
    the between-problem variance of the mean (clusters are problems; Dean and Pagano 2015, "Evaluating confidence
    interval methods for binomial proportions in clustered surveys"). Where that variance is zero, n is the number of
    problems: samples of one problem then count once.

    Args:
        rows: with `problem` and `column`; every row is one sample.

    Raises:
        ValueError: on no rows, or a score that is missing or outside [0, 1].
    """
    if rows.is_empty():
        raise ValueError("avg@k of no rows; expected at least one sample")
    if rows[column].null_count() or not rows[column].is_between(0, 1).all():
        raise ValueError(f"column {column} holds values that are missing or outside [0, 1]")
    means = problem_means(rows, column)
    num, p = len(means), float(means.mean())
    variance = float(means.var(ddof=1)) / num if num > 1 else 0.0
    # Near-zero variances would claim more certainty than all samples being independent could.
    effective = min(p * (1 - p) / variance, float(rows.height)) if variance > 0 else float(num)
    low, high = wilson(p, effective)
    return Estimate(p, low, high, num, rows.height)


def problem_means(rows: pl.DataFrame, column: str) -> np.ndarray:
    """Mean of `column` per problem, ordered by problem. The one place that says what a cluster is. Shape (problems,)."""
    return rows.group_by("problem").agg(pl.col(column).mean()).sort("problem")[column].to_numpy()


def wilson(p: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a proportion p observed on n (effective) samples."""
    centre = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * float(np.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2)))
    return max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half))
