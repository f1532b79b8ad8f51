"""A reward and advantages, which training takes by import path."""

from typing import Any

import torch

from elastic_core.training.grpo.reward import Rollout


def brief(rollout: Rollout) -> float:
    """The grade, less for every token: half of it for a right response of 100 tokens."""
    return rollout.grade.score / (1 + rollout.length / 100)


def centred(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Any, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards less their group's median, on every token that is trained on. Both tensors are (rollouts, tokens), and
    `index` names the group of each rollout; returns advantages and returns, of the same shape."""
    rewards = token_level_rewards.sum(dim=-1)
    advantages = torch.empty_like(rewards)
    for group in set(index):
        rows = torch.from_numpy(index == group)
        advantages[rows] = rewards[rows] - rewards[rows].median()
    advantages = advantages.unsqueeze(-1) * response_mask
    return advantages, advantages
