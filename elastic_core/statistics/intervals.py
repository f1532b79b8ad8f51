"""What an estimate is, and the intervals that have a closed form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

Z95 = 1.959964
"""The standard normal quantile at 0.975."""


class Estimate(NamedTuple):
    """A value with its 95 % interval, and what it was measured on: problems, and rows of the table in all."""

    mean: float
    low: float
    high: float
    num_problems: int
    num_trajectories: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


def wilson(p: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % score interval (Wilson 1927) of a proportion p observed on n (effective) samples."""
    centre = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * float(np.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2)))
    # p itself is always inside; the bounds guard against rounding at 0 and 1.
    return max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half))


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % t-interval of the mean of one value per problem, shape (problems,). One problem bounds nothing."""
    if len(values) < 2:
        return -np.inf, np.inf
    half = t95(len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def t95(degrees: int) -> float:
    """Student's t quantile at 0.975."""
    return float(stdtrit(degrees, 0.975))
