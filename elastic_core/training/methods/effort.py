"""Adaptive effort control of e1 (Kleinman et al. 2025, "e1: Learning adaptive control of reasoning effort", arXiv
2510.27042): a right response counts if it takes at most a share of the problem's average length.

    r_i = score_i if length_i <= effort mean(length), else 0

Difference: one share for the whole training. Theirs draws it for every problem and states it in the prompt, so that
users can set it. No code of theirs was found, and the formula is that of the abstract.
"""

from statistics import fmean
from typing import Any

from pydantic import Field

from elastic_core.training.methods.base import Group, GroupReward


class Effort(GroupReward):
    effort: float = Field(gt=0)
    """Share of the group's mean length, r."""

    def rewards(self, group: Group, memory: Any = None) -> list[float]:
        limit = self.effort * fmean(each.length for each in group)
        return [each.score * (each.length <= limit) for each in group]
