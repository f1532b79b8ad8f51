"""95 % intervals of a mean over problems, from one value per problem.

Coverage of each is measured by `python -m tests.bench coverage`; docs/numbers.md has its table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEVEL = 0.05
_PRIOR_PROBLEMS = 6
"""What `paired_mean` assumes before it has seen any difference counts as this many problems that differ by 1."""
_PRIOR_SQUARE = 1.25
"""The mean square of their differences."""


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
    """The mean of paired differences of scores, in [-1, 1].

    Attributes:
        error: its standard error.
        lean: how far skewness moves an interval, in [-1, 1]: see `paired_mean`.
        pseudo: what the two pseudo-differences add to the sum of squares.
    """

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
    """95 % interval of `paired_mean`; of one of `families` that hold together. One problem bounds nothing but
    [-1, 1]."""
    if len(differences) < 2:
        return -1.0, 1.0
    single, quantile = (t_quantile(len(differences) - 1, number) for number in (1, families))
    return paired_mean(differences, quantile / single).interval(quantile)
