"""DLER (Liu et al. 2025, "DLER: Doing length penalty right", arXiv 2510.15110): truncation as the only length penalty.

    r_i = score_i if the model ended its response within the limit, else truncated * score_i

The rest of the method are settings: norm_adv_by_std = "batch", filter_groups, clip_high = 0.28, and strategy vanilla,
which cuts at t + s tokens. The authors' code (NVlabs/DLER at ea7d4f7, verl/workers/reward_manager/dapo.py) multiplies
by 0.1. Differences: it leaves out groups with equal scores, and we those with equal rewards; and its
`correct_sample_advantage_boost_value`, which adds 0.1 to the normalised advantages of right responses, is not here.
"""

from typing import Any

from pydantic import Field

from elastic_core.training.methods.base import Group, GroupReward


class Dler(GroupReward):
    truncated: float = Field(0.1, ge=0, le=1)
    """Share of its score that a response keeps when a limit cuts it."""

    def rewards(self, group: Group, memory: Any = None) -> list[float]:
        return [each.score if each.finished else self.truncated * each.score for each in group]
