"""A reward of all rollouts of a problem, which training takes by import path: mine:Shortest."""

from typing import Any

from pydantic import Field

from elastic_core.training.methods.base import Group, GroupReward


class Shortest(GroupReward):
    """The grade, and a bonus for the shortest right response of the group."""

    bonus: float = Field(0.5, gt=0)
    """Reward of being the shortest."""

    def rewards(self, group: Group, memory: Any = None) -> list[float]:
        best = min((each.length for each in group if each.right), default=None)
        return [each.score + self.bonus * (each.right and each.length == best) for each in group]
