"""The reward of a rollout: its grade, and what else training wants to see of it.

The agent loop computes it from token ids rather than leaving it to verl's reward workers, which decode without special
tokens: think-end would vanish, and a boxed guess inside an unfinished thought would earn credit.
"""

from typing import Any

from elastic_core.markers import Markers
from elastic_core.rewards import Grade, grade
from elastic_core.rewards.grade import UNANSWERED
from elastic_core.rewards.response import response_text
from elastic_core.training.grpo.l1 import LengthRequest
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory


def grade_trajectory(trajectory: Trajectory, tokenizer: Any, markers: Markers, *, kind: str, truth: str) -> Grade:
    """Grade by `elastic_core.rewards.grade`; `kind` is the grader's."""
    text = response_text(tokenizer, markers, trajectory)
    return grade(kind, text.graded(trajectory.think_finish), truth)


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], **_: Any
) -> dict[str, Any]:
    """verl's `reward.custom_reward_function`: the same grader for whatever else of verl asks for a score, so that none
    of verl's own scorers, some of which evaluate model text, is ever chosen.

    Our rollouts come with their score, see above. This one sees text that verl decoded, without special tokens: a model
    whose think-end is one gets no credit here.

    Raises:
        GradingFailed: when the grader failed, not the response.
    """
    graded = grade(extra_info["grader"], solution_str, ground_truth)
    return {"score": graded.score, "acc": graded.score}


def length(trajectory: Trajectory) -> int:
    """Sampled tokens of thinking and solution."""
    return trajectory.think_tokens + trajectory.solution_tokens


def measures(trajectory: Trajectory, graded: Grade, request: LengthRequest | None = None) -> dict[str, float]:
    """Numbers of one rollout. verl averages those of validation per data source, `trainer.py` those of training.

    Args:
        request: L1's, where there was one.
    """
    measured = {
        "acc": graded.score,
        "answered": float(graded.status not in UNANSWERED),
        "think_tokens": float(trajectory.think_tokens),
        "solution_tokens": float(trajectory.solution_tokens),
        "forced": float(trajectory.think_finish is not ThinkFinish.CLOSED),
        "solution_cut": float(trajectory.solution_finish is SolutionFinish.LENGTH),
    }
    if request is not None:
        error = abs(length(trajectory) - request.tokens)
        measured |= {"asked_tokens": float(request.tokens), "length_error": float(error)}
    return measured
