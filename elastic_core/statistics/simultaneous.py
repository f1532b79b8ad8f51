"""Many paired differences looked at together: intervals that hold for all of them at once, and what follows from one.

The best of many measured cells is partly the luckiest one. An interval that holds for all of them at
once holds for the one that was picked, however it was picked, and nothing has to be held back to confirm it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from elastic_core.statistics.intervals import LEVEL, paired_mean, t_quantile
from elastic_core.statistics.seeds import seed_half_widths, with_seeds

_DRAWS = 4000
_SEED = 0
_MOST_FAMILIES = 8
"""Above this number of families the draws stay as many, and the quantile is known less exactly."""


class NonInferiority(StrEnum):
    """A test of non-inferiority: whether accuracy is at most a margin below that of a reference."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


class Difference(NamedTuple):
    """One of many paired differences, with its simultaneous 95 % interval.

    Attributes:
        half_width: of the interval over problems.
        seeds: what several training seeds add to it (`with_seeds`).
        num_trajectories: of both sides.
    """

    mean: float
    low: float
    high: float
    half_width: float
    seeds: float
    num_problems: int
    num_trajectories: int

    def verdict(self, margin: float) -> NonInferiority:
        """Whether the mean is at least -margin."""
        if self.low >= -margin:
            return NonInferiority.HOLDS
        return NonInferiority.FAILS if self.high < -margin else NonInferiority.UNDECIDED

    def problems_needed(self, margin: float) -> float:
        """As `problems_needed`, to tell the mean from -margin."""
        return problems_needed(self.mean + margin, self.half_width, self.seeds, self.num_problems)


def problems_needed(distance: float, half_width: float, seeds: float, num_problems: int) -> float:
    """How many problems like these would show that two numbers differ, were they as far apart as they were measured to
    be: an interval over problems narrows with the root of their number; what seeds add to it does not. Infinite where
    no number would.

    Args:
        half_width: of the interval over problems.
        seeds: what training seeds add to it.
    """
    room = distance**2 - seeds**2
    if room <= 0 or not np.isfinite(half_width):
        return np.inf
    return float(np.ceil(num_problems * half_width**2 / room))


def simultaneous(values: Sequence[np.ndarray], trajectories: Sequence[int], families: int = 1) -> list[Difference]:
    """The mean of each of several differences with its 95 % interval, such that all of them hold together.

    The intervals are those of `paired_mean`, with the quantile of the greatest of all t statistics in place of
    Student's: that of a multivariate t distribution with the correlation of the differences (Hothorn, Bretz and
    Westfall 2008, "Simultaneous inference in general parametric models"), by simulation with a fixed seed. Cells that
    share their samples are correlated, and cost less than Bonferroni's bound would have it. What several training seeds
    add is in each interval (`seed_half_widths`).

    Args:
        values: differences of scores, each in [-1, 1], on the same problems; of each shape (seeds, problems).
        trajectories: of each, on both sides.
        families: how many such lists hold together, by Bonferroni.
    """
    differences = np.stack([each.mean(axis=0) for each in values], axis=1)
    count = len(differences)
    if count < 2:
        return [
            Difference(float(mean), -1.0, 1.0, np.inf, 0.0, count, rows)
            for mean, rows in zip(differences.mean(axis=0), trajectories, strict=True)
        ]
    pseudo = np.array([paired_mean(column).pseudo for column in differences.T])
    quantile = _greatest(differences - differences.mean(axis=0), pseudo, families)
    means = [paired_mean(column, quantile / t_quantile(count - 1)) for column in differences.T]
    found = []
    for each, added, rows in zip(means, seed_half_widths(values, families), trajectories, strict=True):
        bounds = with_seeds(each.mean, each.interval(quantile), added, (-1.0, 1.0))
        found.append(Difference(each.mean, *bounds, quantile * each.error, added, count, rows))
    return found


def _greatest(centred: np.ndarray, pseudo: np.ndarray, families: int) -> float:
    """The 95 % quantile of the greatest |t| of all columns, shape (problems, cells); of several families the quantile
    that Bonferroni's bound asks of each.

    Args:
        pseudo: what the two pseudo-differences of each column, +d and -d, add to its sum of squares. They are those of
            the same two problems in every column.
    """
    count, cells = centred.shape
    alone = t_quantile(count - 1, families)
    if cells == 1:
        return alone
    problems = np.vstack([centred, np.sqrt(pseudo / 2), -np.sqrt(pseudo / 2)])
    random = np.random.default_rng(_SEED)
    draws = _DRAWS * min(families, _MOST_FAMILIES)
    normal = random.standard_normal((draws, count + 2)) @ (problems / np.sqrt((problems**2).sum(axis=0)))
    scale = np.sqrt(random.chisquare(count - 1, (draws, 1)) / (count - 1))
    return max(alone, float(np.quantile(np.abs(normal / scale).max(axis=1), 1 - LEVEL / families)))
