"""Where a thought is cut, and how much each cut weighs."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

Weighting = Literal["uniform", "linear", "log-uniform", "width"]


def even_cuts(think: int) -> tuple[int, ...]:
    """At each quarter of `think` tokens, as AnytimeReasoner cuts 8000."""
    return tuple(sorted({max(1, think * quarter // 4) for quarter in (1, 2, 3, 4)}))


def halved_cuts(think: int) -> tuple[int, ...]:
    """At an eighth, a quarter, half and all of `think` tokens: budgets that grow exponentially."""
    return tuple(sorted({max(1, think // 2**halvings) for halvings in range(4)}))


def check_cuts(cuts: Sequence[int], think: int) -> None:
    """Raises:
    ValueError: unless the cuts ascend from 1 or more to `think`, the longest thought.
    """
    if not cuts or cuts[0] < 1 or any(b <= a for a, b in pairwise(cuts)):
        raise ValueError(f"cuts = {list(cuts)}; expected ascending numbers of tokens, 1 or more each")
    if cuts[-1] != think:
        raise ValueError(f"cuts end at {cuts[-1]} and the budget thinks for {think} tokens; expected the same")


def shares(weighting: Weighting | Sequence[float], cuts: Sequence[int]) -> tuple[float, ...]:
    """The weight p_j of each cut; together they are 1.

    "uniform" and "linear" (p_j proportional to t_j) are AnytimeReasoner's. "log-uniform" makes the sum of p_j score_j
    the mean of accuracy over log t between the first cut and the last, by the trapezoid rule, and "width" the mean over
    t from 0 to the last, where each cut stands for the budgets up to it. A list is taken as it is, up to its sum.

    Raises:
        ValueError: when the list is not one of weights, one for each cut.
    """
    if not isinstance(weighting, str):
        given = [float(weight) for weight in weighting]
        if len(given) != len(cuts) or min(given) < 0 or not 0 < sum(given) < math.inf:
            raise ValueError(f"cut_weights = {given} for {len(cuts)} cuts; expected a weight of 0 or more for each")
    elif weighting == "uniform" or len(cuts) == 1:
        given = [1.0] * len(cuts)
    elif weighting == "linear":
        given = [float(cut) for cut in cuts]
    elif weighting == "width":
        given = [float(b - a) for a, b in pairwise([0, *cuts])]
    else:
        logs = [math.log(cut) for cut in cuts]
        given = [b - a for a, b in zip([logs[0], *logs[:-1]], [*logs[1:], logs[-1]], strict=True)]
    total = sum(given)
    return tuple(weight / total for weight in given)
