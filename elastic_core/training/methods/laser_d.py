"""Laser-D (Liu et al. 2025, "Learn to reason efficiently with adaptive length-based reward shaping", arXiv 2505.15612):
a bonus for right responses within a target length, which depends on the problem's difficulty and moves with training.

    r_i = score_i + bonus if right and length_i <= L(level), else score_i
    level = high, medium, low for a share of right responses from 2/3, from 1/3, and below
    L(level) = least of `targets` that covers one response of n (n = 5, 2, 1 of 8) in problems of that level

As `compute_length_reward_larse_d` of hkust-nlp/Laser at c9e7c4e. Differences: L is measured on the rollouts of the step
before (theirs on 500 problems, every 20 steps), and a level without responses keeps its L; a wrong response earns 0
(theirs -0.5, or -1 without an answer in a box).
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from elastic_core.training.methods.base import Group, GroupReward


class LaserD(GroupReward):
    memory_of: ClassVar[Literal["nothing", "problem", "all"]] = "all"
    targets: tuple[int, ...] = Field(min_length=1)
    """Target lengths to choose from, in tokens; the last is the one before the first step."""
    bonus: float = Field(0.5, gt=0)
    """Reward of a right response within its target."""

    def rewards(self, group: Group, memory: Any = None) -> list[float]:
        target = (memory or {}).get(_level(group), max(self.targets))
        return [each.score + self.bonus * (each.right and each.length <= target) for each in group]

    def remember(self, memory: Any, groups: Sequence[Group]) -> Any:
        lengths: dict[str, list[int]] = {}
        for group in groups:
            lengths.setdefault(_level(group), []).extend(each.length for each in group)
        least = {"high": max(1, len(groups[0]) * 2 // 3), "medium": max(1, len(groups[0]) // 3), "low": 1}
        return (memory or {}) | {level: self._target(found, least[level]) for level, found in lengths.items()}

    def _target(self, lengths: Sequence[int], least: int) -> int:
        covering = (t for t in sorted(self.targets) if least * sum(n <= t for n in lengths) >= len(lengths))
        return next(covering, max(self.targets))


def _level(group: Group) -> str:
    right = sum(each.right for each in group) / len(group)
    return "high" if right >= 2 / 3 else "medium" if right >= 1 / 3 else "low"
