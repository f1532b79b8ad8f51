"""REO-RL in small (Gao et al. 2025, "How far are we from optimal reasoning efficiency?", arXiv 2506.07104).

Its objective, the accuracy over all budgets, is integrated numerically over few of them that grow exponentially: a
thought's reward is the weighted sum of its scores when cut at each. Our choices, which its abstract leaves open: a cut
stands for the budgets up to it (`anytime.shares`, "width"), the whole thought has GRPO's advantage, and answers have
anytime training's. Compared with `anytime` it shows what rewarding each segment by itself brings.
"""

from collections.abc import Sequence

import numpy as np

_EPSILON = 1e-6


def thinking_advantages(scores: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """For all segments of a thought, where mean and deviation are over the problem's thoughts:

        R = sum_j p_j score_j                                                                   (1)
        A = (R - mean(R)) / (std(R) + 1e-6)                                                     (2)

    Args:
        scores: (thoughts, cuts), the mean score of each cut's answers.
        weights: p, (cuts,).

    Returns:
        (thoughts, cuts).
    """
    rewards = scores @ np.asarray(weights)
    advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + _EPSILON)
    return np.repeat(advantages[:, None], scores.shape[1], axis=1)
