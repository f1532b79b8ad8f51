"""The reward of a rollout: its grade, and what else training wants to see of it.

The agent loop computes it from token ids rather than leaving it to verl's reward workers, which decode without special
tokens: think-end would vanish, and a boxed guess inside an unfinished thought would earn credit.
"""

from typing import Any

from elastic_core.rewards import Grade, grade
from elastic_core.rewards.grade import THINK_END
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory


def response_text(trajectory: Trajectory, tokenizer: Any) -> str:
    """Thinking, think-end as text, solution. Without a solution there is no think-end, and graders give no credit."""
    if trajectory.solution_start is None:
        return tokenizer.decode(trajectory.response_ids, skip_special_tokens=True)
    start = trajectory.solution_start
    thinking, solution = (
        tokenizer.decode(ids, skip_special_tokens=True)
        for ids in (trajectory.response_ids[:start], trajectory.response_ids[start:])
    )
    return f"{thinking.removesuffix(THINK_END)}{THINK_END}{solution}"


def grade_trajectory(trajectory: Trajectory, tokenizer: Any, *, kind: str, truth: str) -> Grade:
    """Grade by `elastic_core.rewards.grade`; `kind` is the grader's."""
    return grade(kind, response_text(trajectory, tokenizer), truth)


def measures(trajectory: Trajectory, graded: Grade) -> dict[str, float]:
    """Numbers of one rollout. verl averages those of validation per data source, `trainer.py` those of training."""
    return {
        "acc": graded.score,
        "think_tokens": float(trajectory.think_tokens),
        "solution_tokens": float(trajectory.solution_tokens),
        "forced": float(trajectory.think_finish is not ThinkFinish.CLOSED),
        "solution_cut": float(trajectory.solution_finish is SolutionFinish.LENGTH),
    }
