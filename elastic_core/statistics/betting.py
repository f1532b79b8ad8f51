"""A promise about a mean from few problems, without a normal distribution: a test by betting.

Waudby-Smith and Ramdas (2023, "Estimating means of bounded random variables by betting", section 4 and appendix B): who
bets at fair odds against "the mean loss is the margin or more" multiplies a capital that, if that were true, reaches
1/p with a chance of at most p (Ville's inequality). So 1 over the largest capital is a p-value, for any number of
problems and any distribution of losses in [-1, 1], as long as the problems come in an order that knows nothing of them.
"""

from __future__ import annotations

import math

import numpy as np

_STAKE = 0.95  # Of the most that can be bet without being ruined by a single problem.
_PRIOR_PROBLEMS = 4
"""What is taken for known before the first problem counts as this many: no loss, and the variance below."""
_PRIOR_VARIANCE = 0.01


def harm_p_value(losses: np.ndarray, margin: float, level: float) -> float:
    """How surprising these losses would be if their mean were `margin` or more.

    Args:
        losses: one per problem, in [-1, 1], shape (problems,), in an order that does not depend on them.
        margin: in (0, 1]; with 1 nothing is promised, and the p-value is 0.
        level: that the p-value is to be held against; the bets aim at it (their equation 17), and every level is valid.
    """
    if margin >= 1:
        return 0.0
    values, bound, ruin = (1 + losses) / 2, (1 + margin) / 2, 2 / (1 - margin)
    weight, total, squares = _PRIOR_PROBLEMS, _PRIOR_PROBLEMS / 2, _PRIOR_PROBLEMS * _PRIOR_VARIANCE
    capital = most = 0.0  # logarithms
    for value in values:
        aimed = math.sqrt(2 * math.log(1 / level) / (len(values) * squares / weight))
        capital += math.log1p(min(_STAKE * ruin, aimed) * (bound - float(value)))
        most = max(most, capital)
        weight, total = weight + 1, total + float(value)
        squares += (float(value) - total / weight) ** 2
    return math.exp(-most)


def problems_at_least(margin: float, level: float) -> int:
    """How many problems it takes to show that the mean loss is below `margin` where there is no loss at all."""
    return math.ceil(math.log(1 / level) / math.log1p(_STAKE * margin / (1 - margin)))


def problems_for(losses: np.ndarray, margin: float, level: float, most: int) -> int | None:
    """How many problems like these would show it, their number times a power of two; None where `most` would not."""
    while len(losses) <= most:
        if harm_p_value(losses, margin, level) <= level:
            return len(losses)
        losses = np.tile(losses, 2)
    return None
