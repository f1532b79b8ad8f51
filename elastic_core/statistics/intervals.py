"""95 % intervals: of a share and of a mean over problems, with the part of training seeds, and of many differences
together. `python -m tests.bench coverage` measures their coverage (docs/coverage.md).

Seeds of one training are measured on the same problems, so seeds and problems are crossed: the variance of the mean of
all is at most (variance between the seeds' means) / S + (variance between the problems' means) / P (Dorfman, Berbaum
and Metz 1992; Obuchowski and Rockette 1995).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.05
_DRAWS = 4000
_SEED = 0
_MOST_FAMILIES = 8  # Above this number of families the draws stay as many, and the quantile is known less exactly.


class Estimate(NamedTuple):
    """A value with its 95 % interval, its number of problems, and rows of the table (of a difference those of both
    sides). `seeds` is half of the interval as far as training seeds make it."""

    mean: float
    low: float
    high: float
    num_problems: int
    num_trajectories: int
    seeds: float = 0.0

    @property
    def row(self) -> tuple[float, float, float, int, int]:
        """Its values in a table of estimates (`estimates_table`)."""
        return self[:5]

    def columns(self, name: str) -> dict[str, float | None]:
        """The columns of a table: `name`, and its bounds `name`_low and `name`_high, null where they are infinite."""
        low, high = (bound if np.isfinite(bound) else None for bound in (self.low, self.high))
        return {name: self.mean, f"{name}_low": low, f"{name}_high": high}


def t_quantile(degrees: float, families: int = 1) -> float:
    """Student's t quantile of a two-sided 95 % interval; of `families` intervals that hold together by Bonferroni."""
    return t_upper(degrees, LEVEL / 2 / families)


def t_upper(degrees: float, chance: float) -> float:
    """What Student's t exceeds with this chance."""
    from scipy.special import stdtrit  # SciPy takes longer to import than most commands to answer.

    return float(stdtrit(degrees, 1 - chance))


def share_interval(p: float, n: float, chance: float = LEVEL / 2) -> tuple[float, float]:
    """Interval of a share p of n effective samples; each bound misses with this chance: Clopper and Pearson's (1934) at
    an effective sample size (Korn and Graubard 1998). Both n and n p may be fractions."""
    from scipy.special import betaincinv

    right, wrong = p * n, (1 - p) * n
    low = float(betaincinv(right, wrong + 1, chance)) if right > 0 else 0.0
    high = float(betaincinv(right + 1, wrong, 1 - chance)) if wrong > 0 else 1.0
    return min(p, low), max(p, high)  # p is always inside; the bounds guard against rounding.


def effective_size(shares: np.ndarray, most: float = np.inf) -> float:
    """Number of independent samples worth as much as these shares, one per problem, shape (problems,): n = p (1 - p) /
    var, where var is the variance of the mean (Dean and Pagano 2015); at most `most`. Two pseudo-problems are added,
    one all right and one all wrong, after Agresti and Coull (1998): near 0 and 1 a handful of problems carries the
    variance. Where samples of one problem are nearly independent this makes intervals too wide.
    """
    padded = np.append(shares, (0.0, 1.0))
    p = min(1.0, max(0.0, float(padded.mean())))
    return min(p * (1 - p) * len(shares) / float(padded.var(ddof=1)), most)


def mean_share(shares: np.ndarray, chance: float = LEVEL / 2, most: float = np.inf) -> tuple[float, float]:
    """Interval of the mean of shares in [0, 1], one per problem, shape (problems,): `share_interval` at their
    `effective_size`."""
    return share_interval(float(shares.mean()), effective_size(shares, most), chance)


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % t-interval of the mean of one value per problem, shape (problems,). One problem bounds nothing."""
    if len(values) < 2:
        return -np.inf, np.inf
    half = t_quantile(len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def paired_interval(differences: np.ndarray, chance: float = LEVEL / 2) -> tuple[float, float]:
    """Interval of the mean of differences of scores, one per problem, in [-1, 1], shape (problems,); each bound misses
    with this chance. [-1, 1] of one problem.

    The mean gain and the mean loss are shares, each with an interval (`mean_share`); the distances to their
    bounds add in squares, with the correlation of gains and losses (MOVER: Zou and Donner 2008; Newcombe 1998). Of n
    problems without a loss 1 - chance^(1/n) may still lose, however many samples there are of each.
    """
    if len(differences) < 2:
        return -1.0, 1.0
    gains, losses = np.maximum(differences, 0.0), np.maximum(-differences, 0.0)
    gain, loss = float(gains.mean()), float(losses.mean())
    (gain_low, gain_high), (loss_low, loss_high) = mean_share(gains, chance), mean_share(losses, chance)
    spread = float(gains.std() * losses.std())
    together = -gain * loss / spread if spread else 0.0  # Of a problem one of the two is 0.
    down = _added(gain - gain_low, loss_high - loss, together)
    up = _added(gain_high - gain, loss - loss_low, together)
    return max(-1.0, gain - loss - down), min(1.0, gain - loss + up)


def _added(one: float, other: float, correlation: float) -> float:
    """The distance of a difference's bound from the distances of its terms'."""
    return float(np.sqrt(one**2 + other**2 - 2 * correlation * one * other))


def seed_half_widths(values: Sequence[np.ndarray], families: int = 1) -> list[float]:
    """Half of the 95 % interval of each mean that is due to seeds, from values of shape (seeds, problems); all hold
    together, with `families` times as many.

    For one mean it is Student's t with S - 1 degrees of freedom times the standard error of the seeds' means, samples
    and interaction included: with two or three seeds a difference of variances is too often 0. For several, it is
    at least t times the root of their mean squared error, with the degrees of freedom and the number of all (Šidák
    1967): with two seeds some of many agree by chance.
    """
    errors = [float(each.mean(axis=1).std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0 for each in values]
    seeded = [(error, len(each)) for error, each in zip(errors, values, strict=True) if len(each) > 1]
    if not seeded:
        return [0.0] * len(values)
    number = len(values) * families
    alone = {count: t_quantile(count - 1) for _, count in seeded}
    joint = t_upper(sum(count - 1 for _, count in seeded), (1 - (1 - LEVEL) ** (1 / number)) / 2)
    pooled = max(joint, *alone.values()) * float(np.sqrt(np.mean([error**2 for error, _ in seeded])))
    return [
        max(alone[len(each)] * error, pooled if number > 1 else 0.0) if len(each) > 1 else 0.0
        for error, each in zip(errors, values, strict=True)
    ]


def with_seeds(
    mean: float, interval: tuple[float, float], seeds: float, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[float, float]:
    """An interval over problems, widened by `seeds` (of `seed_half_widths`): squares of half widths add up, to either
    side (MOVER: Zou and Donner 2008). With one seed it is the interval over problems. `bounds` are the mean's."""
    if seeds == 0.0:
        return interval
    low, high = interval
    return (
        max(bounds[0], mean - float(np.hypot(mean - low, seeds))),
        min(bounds[1], mean + float(np.hypot(high - mean, seeds))),
    )


def problems_needed(distance: float, half_width: float, seeds: float, num_problems: int) -> float:
    """Number of problems that would show a difference as measured: the half width narrows with the root of their
    number, except for the part of seeds. Infinite where no number would."""
    room = distance**2 - seeds**2
    if room <= 0 or not np.isfinite(half_width):
        return np.inf
    return float(np.ceil(num_problems * half_width**2 / room))


def simultaneous(values: Sequence[np.ndarray], trajectories: Sequence[int], families: int = 1) -> list[Estimate]:
    """Means of several differences of scores on the same problems, each of shape (seeds, problems), with 95 % intervals
    that hold together, so for the one that is picked too; several `families` of lists by Bonferroni.

    The intervals are those of `paired_interval` at the chance of Student's t beyond the quantile of the greatest of all
    t statistics: a multivariate t distribution with the differences' correlation (Hothorn, Bretz and Westfall 2008), by
    simulation with a fixed seed. `seed_half_widths` adds the part of training seeds.
    """
    differences = np.stack([each.mean(axis=0) for each in values], axis=1)
    count = len(differences)
    if count < 2:
        means = zip(differences.mean(axis=0), trajectories, strict=True)
        return [Estimate(float(mean), -1.0, 1.0, count, rows) for mean, rows in means]
    chance = _of_each(differences - differences.mean(axis=0), families)
    found = []
    for column, added, rows in zip(differences.T, seed_half_widths(values, families), trajectories, strict=True):
        mean = float(column.mean())
        bounds = with_seeds(mean, paired_interval(column, chance), added, (-1.0, 1.0))
        found.append(Estimate(mean, *bounds, count, rows))
    return found


def _of_each(centred: np.ndarray, families: int) -> float:
    """Chance with which each bound of several intervals may miss for all to hold in 95 %, from columns of shape
    (problems, cells), with pseudo-problems +1 and -1 as in `effective_size`; several families by Bonferroni."""
    from scipy.special import stdtr

    count, cells = centred.shape
    if cells == 1:
        return LEVEL / 2 / families
    problems = np.vstack([centred, np.ones(cells), -np.ones(cells)])
    random = np.random.default_rng(_SEED)
    draws = _DRAWS * min(families, _MOST_FAMILIES)
    factor = np.linalg.qr(problems / np.sqrt((problems**2).sum(axis=0)), mode="r")
    normal = random.standard_normal((draws, len(factor))) @ factor  # Correlated as the columns are.
    scale = np.sqrt(random.chisquare(count - 1, (draws, 1)) / (count - 1))
    greatest = float(np.quantile(np.abs(normal / scale).max(axis=1), 1 - LEVEL / families))
    return min(LEVEL / 2 / families, float(stdtr(count - 1, -greatest)))
