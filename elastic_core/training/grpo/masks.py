"""Which tokens of a rollout training learns from.

Tokens that were not sampled are no choice of the policy's, so a forced think-end is left out. The published script of
Elastic Reasoning takes it for sampled: a policy whose forced thought leads to a right answer then learns to write
think-end there.
"""

from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory


def is_truncated(trajectory: Trajectory) -> bool:
    """Whether a limit ended the response and not the model. A thought that was cut and then closed by us is followed by
    a solution, whose end is what counts."""
    return SolutionFinish.LENGTH is trajectory.solution_finish or ThinkFinish.LENGTH is trajectory.think_finish


def loss_mask(trajectory: Trajectory, *, forced_end: bool = False, truncated: bool = True) -> list[int]:
    """1 for each response token that enters the loss: its policy, KL and entropy terms, and the count of its mean.

    The reward of a rollout that is left out stays among its group's, so others are compared with it (overlong
    filtering: DAPO, Yu et al. 2025, section 3.4; DeepCoder).

    Args:
        forced_end: also the tokens that were forced.
        truncated: also responses that a limit ended.
    """
    if not truncated and is_truncated(trajectory):
        return [0] * len(trajectory.forced)
    return [int(forced_end or not forced) for forced in trajectory.forced]
