"""HAPO (Huang, Zhang and Cardie 2025, "HAPO: Training language models to reason concisely via history-aware policy
optimization", arXiv 2505.11225): shorter than the shortest right response of all earlier steps earns more.

    r_i = score_i + weight c_i,  c_i = max(-0.7, x_i) if right, else min(0, x_i)
    x_i = cos(min(length_i / h, 2) pi / 2), where h is the problem's shortest right length so far; 0 without one

As `compute_len_reward` of HCY123902/HAPO at c91ae3b (utils.py), with its default mode "min" and no penalty for
repetitions. A response counts as right if its score is 1, a partly right one as wrong.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from elastic_core.training.methods.base import Group, GroupReward


class Hapo(GroupReward):
    memory_of: ClassVar[Literal["nothing", "problem", "all"]] = "problem"
    weight: float = Field(1.0, gt=0, le=1)
    """Weight of the length reward; up to 1 a right response earns more than a wrong one."""

    def rewards(self, group: Group, memory: Any = None) -> list[float]:
        found = []
        for each in group:
            x = math.cos(min(each.length / memory, 2) * math.pi / 2) if memory else 0.0
            found.append(each.score + self.weight * (max(-0.7, x) if each.right else min(0.0, x)))
        return found

    def remember(self, memory: Any, groups: Sequence[Group]) -> Any:
        right = [each.length for group in groups for each in group if each.right]
        return min(right + [memory] * (memory is not None), default=None)
