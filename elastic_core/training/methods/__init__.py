"""Rewards of published methods that shorten responses, by the name that `train.reward` gives; docs/methods.md compares
them.

ThinkPrune (Hou et al. 2025, arXiv 2504.01296) needs no reward of its own: `correctness` under strategy vanilla, whose
limit falls from one training of an ablation to the next (`after`). Its prompts state the limit too, ours do not. L1's
rewards, of a rollout and its request, are in grpo/reward.py.
"""

from elastic_core.training.methods.alp import Alp
from elastic_core.training.methods.base import GroupReward
from elastic_core.training.methods.dler import Dler
from elastic_core.training.methods.effort import Effort
from elastic_core.training.methods.hapo import Hapo
from elastic_core.training.methods.laser_d import LaserD
from elastic_core.training.methods.linear import Linear
from elastic_core.training.methods.shorterbetter import ShorterBetter

METHODS: dict[str, type[GroupReward]] = {
    "dler": Dler,
    "shorterbetter": ShorterBetter,
    "hapo": Hapo,
    "alp": Alp,
    "laser_d": LaserD,
    "effort": Effort,
    "linear": Linear,
}
