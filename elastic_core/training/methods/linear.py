"""prime-rl's linear length penalty (PrimeIntellect-ai/prime-rl at 559b447, orchestrator/algo/grpo.py): tokens cost the
more, the more of a problem's responses are right.

    r_i = score_i - weight mean(score) length_i / max(length)

Its advantages are not divided by the deviation: norm_adv_by_std = "none". It also has terms for a prompt's tokens and
for turns; here a rollout has one turn, and all rollouts of a problem one prompt, so they would change no advantage.
"""

from statistics import fmean
from typing import Any

from pydantic import Field

from elastic_core.training.methods.base import Group, GroupReward


class Linear(GroupReward):
    weight: float = Field(0.25, gt=0)
    """Reward that the longest response loses where all are right."""

    def rewards(self, group: Group, memory: Any = None) -> list[float]:
        cost = self.weight * fmean(each.score for each in group) / max(1, *(each.length for each in group))
        return [each.score - cost * each.length for each in group]
