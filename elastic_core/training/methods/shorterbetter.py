"""ShorterBetter (Yi, Wang and Li 2025, arXiv 2504.21370): the shortest right response of the group is the best length.

    r_i = alpha score_i - beta |length_i - best|
    best = the least length of a right response; without one, the mean length

The published sources have no training code, so the formula is the reference.
"""

from statistics import fmean
from typing import Any

from pydantic import Field

from elastic_core.training.methods.base import Group, GroupReward


class ShorterBetter(GroupReward):
    alpha: float = Field(2.0, gt=0)
    """Reward of a right response."""
    beta: float = Field(gt=0)
    """Reward lost per token away from the best length."""

    def rewards(self, group: Group, memory: Any = None) -> list[float]:
        right = [each.length for each in group if each.right]
        best = min(right) if right else fmean(each.length for each in group)
        return [self.alpha * each.score - self.beta * abs(each.length - best) for each in group]
