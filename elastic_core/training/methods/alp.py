"""ALP (Xiang et al. 2025, "Just enough thinking: Efficient reasoning with adaptive length penalties reinforcement
learning", arXiv 2506.05256): tokens cost the more, the more of a problem's responses are right.

    r_i = score_i - beta max(p, 1/K) length_i,  p = the mean score of the K responses

Theirs divides beta by a constant N, which is part of our beta. No code of theirs was found; the formula is the
reference.
"""

from statistics import fmean
from typing import Any

from pydantic import Field

from elastic_core.training.methods.base import Group, GroupReward


class Alp(GroupReward):
    beta: float = Field(gt=0)
    """Reward lost per token of a problem that is always solved."""

    def rewards(self, group: Group, memory: Any = None) -> list[float]:
        cost = self.beta * max(fmean(each.score for each in group), 1 / len(group))
        return [each.score - cost * each.length for each in group]
