"""A test of a mean of losses in [-1, 1] by betting (Waudby-Smith and Ramdas 2023), which needs no normal distribution.

A bettor at fair odds against "the mean loss is the margin or more" reaches the capital 1/p with a chance of at most p
if that is true (Ville's inequality), at whatever number of problems one looks, if their order does not depend on
losses. What differs from the paper: the capital is shared between bettors of whom each sees only the first 1, 2, 4 …
samples of a problem, so that one may look at any number of samples as well.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

# Every bet that does not know later losses is valid; these decide how many problems it takes.
_STAKE = 0.85  # Of the most that can be bet without being ruined by a single problem.
_HORIZON = 512  # Problems that the bets aim at, or as many as there are by then.
_PRIOR_PROBLEMS, _PRIOR_VARIANCE = 4, 0.01  # Known before the first problem: 4 without loss, with this variance.


def largest_capital(
    losses: np.ndarray, margins: np.ndarray, chance: float, weights: np.ndarray | None = None
) -> np.ndarray:
    """The largest capital of a bettor who begins with 1, with the bets of the paper's equation 17.

    Args:
        losses: in [-1, 1], shape (…, looks, problems): of each problem its mean loss over the first 1, 2, 4 … samples,
            in an order of the problems that does not depend on the losses.
        margins: in (0, 1), shape (margins,).
        chance: that the bets aim at: 1 over the capital that they are to reach.
        weights: what each problem counts, in (0, 1], shape (problems,): its part of the largest group, where what is
            given are means of groups of problems. None where all count the same.

    Returns:
        Logarithms of the capital, 0 or more, shape (…, margins).
    """
    values = np.moveaxis((1 + losses) / 2, -1, 0)[..., None, :]  # problems, …, margins, looks
    bound = (1 + margins)[:, None] / 2
    most_bet = _STAKE / (1 - bound)
    capital = np.broadcast_to(np.log(_shares(losses.shape[-2])), np.broadcast_shapes(values.shape[1:], bound.shape))
    largest = np.zeros(capital.shape[:-1])
    seen, total, squares = float(_PRIOR_PROBLEMS), _PRIOR_PROBLEMS / 2, _PRIOR_PROBLEMS * _PRIOR_VARIANCE
    for value, weight in zip(values, np.ones(len(values)) if weights is None else weights, strict=True):
        bet = np.minimum(most_bet, np.sqrt(-2 * np.log(chance) / (max(seen, _HORIZON) * squares / seen)))
        capital = capital + np.log1p(bet * weight * (bound - value))
        largest = np.maximum(largest, np.logaddexp.reduce(capital, axis=-1))
        seen, total = seen + weight, total + weight * value
        squares = squares + weight * (value - total / seen) ** 2
    return largest


def _shares(looks: int) -> np.ndarray:
    """Parts of the capital for the bettors who see 1, 2, 4 … samples: 1/2, 1/6, 1/12 …, which add up to less than 1."""
    place = np.arange(1, looks + 1)
    return 1 / (place * (place + 1))


def problems_at_least(margin: float, chance: float, looks: int = 1) -> int:
    """Number of problems without any loss that show at this level that the mean loss is below `margin`."""

    def capital(problems: int) -> float:
        return float(largest_capital(np.zeros((looks, problems)), np.array([margin]), chance)[0])

    most = 64
    while capital(most) < -np.log(chance):
        most *= 2
    return bisect_left(range(most + 1), -np.log(chance), lo=1, key=capital)
