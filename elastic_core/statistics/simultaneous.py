"""Many paired differences looked at together: intervals that hold for all of them at once, and what follows from one.

Whoever picks one of many cells by what was measured picks its luck as well. An interval that holds for all of them at
once holds for the one that was picked, however it was picked, and nothing has to be held back to confirm it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from elastic_core.statistics.estimates import paired_error, pseudo_spread, t95

_DRAWS = 4000
_SEED = 0


class NonInferiority(StrEnum):
    """A test of non-inferiority: whether accuracy is at most a margin below that of a reference."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


class Difference(NamedTuple):
    """One of many paired differences, with its simultaneous 95 % interval.

    Attributes:
        error: its standard error.
        quantile: how many of these the interval reaches to either side; the same for all.
        num_trajectories: of both sides.
    """

    mean: float
    low: float
    high: float
    error: float
    quantile: float
    num_problems: int
    num_trajectories: int

    def verdict(self, margin: float) -> NonInferiority:
        """Whether the mean is at least -margin."""
        if self.low >= -margin:
            return NonInferiority.HOLDS
        return NonInferiority.FAILS if self.high < -margin else NonInferiority.UNDECIDED

    def problems_needed(self, margin: float) -> float:
        """How many problems like these would decide it, were the mean what it was measured to be: an interval narrows
        with the root of their number. Infinite where the mean is at the margin itself."""
        distance = abs(self.mean + margin)
        if distance == 0:
            return np.inf
        return float(np.ceil(self.num_problems * (self.quantile * self.error / distance) ** 2))


def simultaneous(
    differences: np.ndarray, num_samples: Sequence[float], trajectories: Sequence[int]
) -> list[Difference]:
    """The mean of each column with its 95 % interval, such that all of them hold together.

    The intervals are those of `paired_interval`, with the quantile of the greatest of all t statistics in place of
    Student's: that of a multivariate t distribution with the correlation of the columns (Hothorn, Bretz and Westfall
    2008, "Simultaneous inference in general parametric models"), by simulation with a fixed seed. Cells that share
    their samples are correlated, and cost less than Bonferroni's bound would have it.

    Args:
        differences: of scores, each in [-1, 1], shape (problems, cells), of at least one cell.
        num_samples: of a problem in each cell, on the side that has fewer.
        trajectories: of each cell, on both sides.
    """
    count = len(differences)
    means = differences.mean(axis=0)
    if count < 2:
        return [
            Difference(float(mean), -1.0, 1.0, np.inf, np.inf, count, rows)
            for mean, rows in zip(means, trajectories, strict=True)
        ]
    columns = list(zip(differences.T, num_samples, strict=True))
    errors = np.array([paired_error(column, samples) for column, samples in columns])
    quantile = _greatest(differences - means, np.array([pseudo_spread(column, samples) for column, samples in columns]))
    return [
        Difference(
            float(mean), max(-1.0, float(mean - quantile * error)), min(1.0, float(mean + quantile * error)),
            float(error), quantile, count, rows,
        )
        for mean, error, rows in zip(means, errors, trajectories, strict=True)
    ]  # fmt: skip


def _greatest(centred: np.ndarray, pseudo: np.ndarray) -> float:
    """The 95 % quantile of the greatest |t| of all columns, shape (problems, cells).

    Args:
        pseudo: what the two pseudo-differences of each column, +d and -d, add to its sum of squares. They are those of
            the same two problems in every column.
    """
    count, cells = centred.shape
    if cells == 1:
        return t95(count - 1)
    problems = np.vstack([centred, np.sqrt(pseudo / 2), -np.sqrt(pseudo / 2)])
    random = np.random.default_rng(_SEED)
    normal = random.standard_normal((_DRAWS, count + 2)) @ (problems / np.sqrt((problems**2).sum(axis=0)))
    scale = np.sqrt(random.chisquare(count - 1, (_DRAWS, 1)) / (count - 1))
    return max(t95(count - 1), float(np.quantile(np.abs(normal / scale).max(axis=1), 0.95)))
