"""The reward of a rollout, and what else training wants to see of it.

It is the grade, or L1's (Aggarwal and Welleck 2025, "L1: Controlling how long a reasoning model thinks", section 3):
the prompt asks for n tokens, and the reward weighs how far the response, thinking and solution, is from n.

The agent loop computes it from token ids rather than leaving it to verl's reward workers, which decode without special
tokens: think-end would vanish, and a boxed guess inside an unfinished thought would earn credit.
"""

from dataclasses import dataclass
from typing import Any

from elastic_core.budget import Budget, TokenRange
from elastic_core.models.special_tokens import Markers
from elastic_core.rewards import Grade, grade
from elastic_core.rewards.grade import UNANSWERED
from elastic_core.rewards.response import response_text
from elastic_core.strategies import STRATEGIES
from elastic_core.training.grpo.parameters import L1Parameters
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory

_MAX_OFFSET = 0.5
"""L1-Max's delta: what a right answer of exactly n tokens is worth."""


@dataclass(frozen=True)
class LengthRequest:
    """L1's request for `tokens` tokens, and its reward."""

    parameters: L1Parameters
    tokens: int

    @classmethod
    def drawn(cls, parameters: L1Parameters, seed: int) -> "LengthRequest":
        """What the rollouts of one problem in one step are asked for; equal seeds ask for equal lengths."""
        return cls(parameters, TokenRange.parse(parameters.lengths).draw(seed))

    def prompt(self, question: str) -> str:
        """The user's message, in the words that sweeps ask in: they ask for t + s tokens, however the model splits
        them."""
        return STRATEGIES[f"l1_{self.parameters.form}"].prompt(question, Budget(0, self.tokens))

    def reward(self, score: float, length: int) -> float:
        """The reward of a response of `length` sampled tokens whose answer scores `score` in [0, 1]."""
        shaped = exact_reward if self.parameters.form == "exact" else max_reward
        return shaped(score, length, self.tokens, self.parameters.penalty)


def exact_reward(score: float, length: int, asked: int, penalty: float) -> float:
    """L1-Exact, equation 1: score - alpha |n - length|. A wrong answer of the right length earns 0."""
    return score - penalty * abs(asked - length)


def max_reward(score: float, length: int, asked: int, penalty: float) -> float:
    """L1-Max, equation 2: score * clip(alpha (n - length) + delta, 0, 1), delta = 0.5. A wrong answer earns nothing at
    any length."""
    return score * min(1.0, max(0.0, penalty * (asked - length) + _MAX_OFFSET))


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
