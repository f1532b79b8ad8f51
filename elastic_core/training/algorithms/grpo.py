"""GRPO: one thought and one solution a rollout, under one budget (grpo/agent_loop.py); rewards are compared within the
rollouts of a problem."""

from typing import Any

import numpy as np
import torch

_EPSILON = 1e-6


def group_advantages(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """GRPO's group advantage (Elastic Reasoning, section 3.3): rewards less their group's mean, over its deviation.

        A_i = (r_i - mean(r)) / (std(r) + 1e-6)                                                 (1)

    on every token of rollout i that is trained on, 0 on others.

    verl's own "grpo" takes mean and deviation in single precision. There the mean of equal fractional rewards, like
    those of L1's responses that are all cut, is off by 1e-7, and divided by 1e-6. In double precision it is exact, so a
    group without variance has advantage 0.

    Args:
        token_level_rewards: (rollouts, tokens), the reward on the last token.
        response_mask: (rollouts, tokens), 0 where not trained on or padding.
        index: (rollouts,) which group each is of.

    Returns:
        Advantages and returns, (rollouts, tokens), the same: there is no critic.
    """
    rewards = token_level_rewards.sum(dim=-1).double()
    advantages = torch.empty_like(rewards)
    for group in set(index):
        rows = torch.from_numpy(index == group)
        mean, deviation = rewards[rows].mean(), rewards[rows].std()
        advantages[rows] = (rewards[rows] - mean) / (deviation + _EPSILON)
    of_tokens = advantages.float().unsqueeze(-1) * response_mask
    return of_tokens, of_tokens
