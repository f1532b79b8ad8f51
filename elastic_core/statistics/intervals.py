"""95 % intervals: of a share and of a mean over problems, what training seeds add, and of many differences together.

Coverage of each is measured by `python -m tests.bench coverage`; docs/numbers.md has its table.

A model that was trained with several seeds was measured on the same problems each time, so seeds and problems are
crossed, and both are drawn from many. With y[seed, problem], means over samples, the variance of the mean of all is at
most (variance between the seeds' means) / S + (variance between the problems' means) / P, the layout of readers and
cases (Dorfman, Berbaum and Metz 1992; Obuchowski and Rockette 1995).

The best of many measured cells is partly the luckiest one. An interval that holds for all of them at once holds for the
one that was picked, and nothing has to be held back to confirm it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.05
_PRIOR_PROBLEMS = 6
"""What `paired_mean` assumes before it has seen any difference counts as this many problems that differ by 1."""
_PRIOR_SQUARE = 1.25  # The mean square of their differences.
_DRAWS = 4000
_SEED = 0
_MOST_FAMILIES = 8  # Above this number of families the draws stay as many, and the quantile is known less exactly.


class Estimate(NamedTuple):
    """A value with its 95 % interval, and what it was measured on: problems, and rows of the table in all; of a
    difference those of both sides. `seeds` is half of the interval as far as training seeds make it."""

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


def share_interval(p: float, n: float) -> tuple[float, float]:
    """95 % interval of a share p observed on n effective samples: Clopper and Pearson's (1934) at an effective sample
    size, as Korn and Graubard (1998) use it for clustered samples. Both n and n p may be fractions."""
    from scipy.special import betaincinv

    right, wrong = p * n, (1 - p) * n
    low = float(betaincinv(right, wrong + 1, LEVEL / 2)) if right > 0 else 0.0
    high = float(betaincinv(right + 1, wrong, 1 - LEVEL / 2)) if wrong > 0 else 1.0
    return min(p, low), max(p, high)  # p is always inside; the bounds guard against rounding.


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % t-interval of the mean of one value per problem, shape (problems,). One problem bounds nothing."""
    if len(values) < 2:
        return -np.inf, np.inf
    half = t_quantile(len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


class PairedMean(NamedTuple):
    """The mean of paired differences of scores, in [-1, 1], and its standard error; how far skewness moves an interval
    (`lean`, in [-1, 1]); and what the two pseudo-differences of `paired_mean` add to the sum of squares."""

    mean: float
    error: float
    lean: float
    pseudo: float

    def interval(self, quantile: float) -> tuple[float, float]:
        """The interval that reaches `quantile` standard errors to either side."""
        shift, half = self.lean * (1 + 2 * quantile**2), quantile * self.error
        low, high = self.mean + shift - half, self.mean + shift + half
        return max(-1.0, min(self.mean, low)), min(1.0, max(self.mean, high))


def paired_mean(differences: np.ndarray, stretch: float = 1.0) -> PairedMean:
    """The mean of differences of scores, one per problem, each in [-1, 1], shape (problems,), at least two.

    Two corrections to Student's t make its interval hold where a budget breaks a few problems and leaves the others as
    they were, and scores hardly differ:

    - Two pseudo-differences +d and -d are added to the variance, in the spirit of Bonett and Price (2012, "Adjusted
      Wald confidence interval for a difference of binomial proportions based on paired data"): where all problems agree
      their variance is 0, and that is not all there is to know. d² is a weighted mean: of the squares of the problems'
      differences, each weighing its own size, and of `_PRIOR_PROBLEMS` more of mean square `_PRIOR_SQUARE`. Neither
      more samples of a problem nor small differences show problems that are rarer than one in this many.
    - The interval is moved by its third moment (Johnson 1978, "Modified t tests and confidence intervals for
      asymmetrical populations", equation 2.8): rare losses have a long tail on their side.

    Args:
        stretch: by how much the interval's quantile exceeds that of a single 95 % interval, as a factor. Where no
            problem differs, an interval that misses with chance c has to reach -ln c problems. That grows faster than
            the quantile, so the pseudo-differences grow as well.
    """
    count = len(differences)
    mean = float(differences.mean())
    deviations = differences - mean
    squares = float(differences @ differences) + _PRIOR_PROBLEMS * _PRIOR_SQUARE * max(1.0, stretch)
    pseudo = 2 * squares / (float(np.abs(differences).sum()) + _PRIOR_PROBLEMS)
    variance = (float(deviations @ deviations) + pseudo) / (count + 1)
    lean = float((deviations**3).mean()) / (6 * variance * count)
    return PairedMean(mean, float(np.sqrt(variance / count)), lean, pseudo)


def paired_interval(differences: np.ndarray, families: int = 1) -> tuple[float, float]:
    """95 % interval of `paired_mean`; of one of `families` that hold together; [-1, 1] of one problem."""
    if len(differences) < 2:
        return -1.0, 1.0
    single, quantile = (t_quantile(len(differences) - 1, number) for number in (1, families))
    return paired_mean(differences, quantile / single).interval(quantile)


def seed_half_widths(values: Sequence[np.ndarray], families: int = 1) -> list[float]:
    """Half of the 95 % interval of each mean, of values of shape (seeds, problems), as far as seeds make it, such that
    all of them hold together, with `families` times as many.

    For one mean it is Student's t with S - 1 degrees of freedom times the standard error of the seeds' own means.
    Samples and the interaction of seed and problem are in that, because with two or three seeds what is left after a
    subtraction is too often 0 by chance. Of several, each is the larger of that and of t times the root of their mean
    squared error, with the degrees of freedom and the number of all of them (Šidák 1967): with two seeds some of many
    would agree by chance. It holds whether the means vary with the seed alike, as when one seed trains a better model
    at every budget, or each by itself.
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
    """How many problems like these would show that two numbers differ, were they as far apart as measured: the half
    width over problems narrows with the root of their number; what seeds add to it does not. Infinite where none would.
    """
    room = distance**2 - seeds**2
    if room <= 0 or not np.isfinite(half_width):
        return np.inf
    return float(np.ceil(num_problems * half_width**2 / room))


def simultaneous(values: Sequence[np.ndarray], trajectories: Sequence[int], families: int = 1) -> list[Estimate]:
    """The mean of each of several differences of scores on the same problems, each of shape (seeds, problems), with its
    95 % interval, such that all of them hold together; of several `families` of lists by Bonferroni.

    The intervals are those of `paired_mean`, with the quantile of the greatest of all t statistics in place of
    Student's: that of a multivariate t distribution with the correlation of the differences (Hothorn, Bretz and
    Westfall 2008, "Simultaneous inference in general parametric models"), by simulation with a fixed seed. Cells that
    share their samples are correlated, and cost less than Bonferroni's bound would have it. What several training seeds
    add is in each interval (`seed_half_widths`).
    """
    differences = np.stack([each.mean(axis=0) for each in values], axis=1)
    count = len(differences)
    if count < 2:
        return [
            Estimate(float(mean), -1.0, 1.0, count, rows)
            for mean, rows in zip(differences.mean(axis=0), trajectories, strict=True)
        ]
    pseudo = np.array([paired_mean(column).pseudo for column in differences.T])
    quantile = _greatest(differences - differences.mean(axis=0), pseudo, families)
    means = [paired_mean(column, quantile / t_quantile(count - 1)) for column in differences.T]
    found = []
    for each, added, rows in zip(means, seed_half_widths(values, families), trajectories, strict=True):
        bounds = with_seeds(each.mean, each.interval(quantile), added, (-1.0, 1.0))
        found.append(Estimate(each.mean, *bounds, count, rows))
    return found


def _greatest(centred: np.ndarray, pseudo: np.ndarray, families: int) -> float:
    """The 95 % quantile of the greatest |t| of all columns, shape (problems, cells); of several families the quantile
    that Bonferroni's bound asks of each. The two pseudo-differences of each column, +d and -d, add `pseudo` to its sum
    of squares, and are those of the same two problems in every column."""
    count, cells = centred.shape
    alone = t_quantile(count - 1, families)
    if cells == 1:
        return alone
    problems = np.vstack([centred, np.sqrt(pseudo / 2), -np.sqrt(pseudo / 2)])
    random = np.random.default_rng(_SEED)
    draws = _DRAWS * min(families, _MOST_FAMILIES)
    factor = np.linalg.qr(problems / np.sqrt((problems**2).sum(axis=0)), mode="r")
    normal = random.standard_normal((draws, len(factor))) @ factor  # Correlated as the columns are.
    scale = np.sqrt(random.chisquare(count - 1, (draws, 1)) / (count - 1))
    return max(alone, float(np.quantile(np.abs(normal / scale).max(axis=1), 1 - LEVEL / families)))
