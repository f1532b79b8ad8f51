"""The reward of a rollout, and the other numbers that training logs of it.

A reward is a function of a graded rollout, or a `GroupReward` of all rollouts of its problem. The agent loop computes
it from token ids. verl's reward workers decode without special tokens: think-end would vanish, and a boxed guess inside
an unfinished thought would earn credit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from elastic_core.budget import Budget, TokenRange
from elastic_core.errors import first_fault
from elastic_core.rewards import Grade, grade
from elastic_core.rewards.truth import UNANSWERED, GradeStatus
from elastic_core.strategies import STRATEGIES
from elastic_core.system.imported import imported
from elastic_core.training.methods import METHODS
from elastic_core.training.methods.base import GroupReward, Outcome
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory

if TYPE_CHECKING:
    from omegaconf import DictConfig


class L1Parameters(BaseModel):
    """Which length is requested, and what missing it costs."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    form: Literal["exact", "max"]
    """Ask for n tokens, or for at most n: "exact" or "max"."""
    lengths: str = "100..4000"
    """Requested tokens, n: drawn from this range per problem and step, from train.seed."""
    penalty: float = Field(3e-4, gt=0, lt=1)
    """Reward lost per token away from n (alpha)."""

    @field_validator("lengths")
    @classmethod
    def _at_least_one(cls, text: str) -> str:
        if TokenRange.parse(text).low < 1:
            raise ValueError(f'"{text}" asks for no tokens; expected 1 or more')
        return text


@dataclass(frozen=True)
class LengthRequest:
    """L1's request for `tokens` tokens, thinking and solution together."""

    parameters: L1Parameters
    tokens: int

    @classmethod
    def drawn(cls, parameters: L1Parameters, seed: int) -> "LengthRequest":
        """The request of all rollouts of one problem in one step; equal seeds draw equal lengths."""
        return cls(parameters, TokenRange.parse(parameters.lengths).draw(seed))

    def prompt(self, question: str) -> str:
        """The user's message, in the words of sweeps, which ask for t + s tokens."""
        return STRATEGIES[f"l1_{self.parameters.form}"].prompt(question, Budget(0, self.tokens))


@dataclass(frozen=True)
class Rollout:
    """A graded response. `request` is L1's, None where the prompt asks for no length."""

    trajectory: Trajectory
    grade: Grade
    request: LengthRequest | None = None

    @property
    def length(self) -> int:
        """Sampled tokens of thinking and solution."""
        return self.trajectory.think_tokens + self.trajectory.solution_tokens

    @property
    def outcome(self) -> Outcome:
        """What a reward of the group sees."""
        ended = self.trajectory.solution_finish is SolutionFinish.STOP
        return Outcome(self.grade.score, self.length, ended)


def correctness(rollout: Rollout) -> float:
    """The grade in [0, 1]; the default."""
    return rollout.grade.score


def finished(rollout: Rollout) -> float:
    """The grade of a solution that the model ended, nothing for one that its budget cut. By correctness alone what
    follows the answer is free: a model can unlearn to stop, and then go on to other answers where it has room."""
    return rollout.grade.score if rollout.trajectory.solution_finish is SolutionFinish.STOP else 0.0


def l1_exact(rollout: Rollout) -> float:
    """L1-Exact (Aggarwal and Welleck 2025, "L1: Controlling how long a reasoning model thinks", equation 1):
    score - alpha |n - length|. A wrong answer of the right length earns 0."""
    assert rollout.request is not None, "refused by the settings"
    return rollout.grade.score - rollout.request.parameters.penalty * abs(rollout.request.tokens - rollout.length)


def l1_max(rollout: Rollout) -> float:
    """L1-Max, equation 2: score * clip(alpha (n - length) + delta, 0, 1) with delta = 0.5, the worth of a right
    answer of n tokens. A wrong answer earns nothing at any length."""
    assert rollout.request is not None, "refused by the settings"
    saved = rollout.request.parameters.penalty * (rollout.request.tokens - rollout.length)
    return rollout.grade.score * min(1.0, max(0.0, saved + 0.5))


Reward = Callable[[Rollout], float]
REWARDS: dict[str, Reward] = {each.__name__: each for each in (correctness, finished, l1_exact, l1_max)}


def reward_of(name: str, **settings: Any) -> Reward | GroupReward:
    """The reward that `train.reward` names: of `REWARDS`, of `METHODS`, or by import path. UserError as `imported`;
    ValueError for settings that it does not take."""
    found: Any = REWARDS.get(name) or METHODS.get(name) or imported(name)
    if isinstance(found, type) and issubclass(found, GroupReward):
        try:
            return found(**settings)
        except ValidationError as error:
            raise ValueError(f"{first_fault(error, 'reward_settings')} (reward = {name})") from None
    if settings:
        raise ValueError(f"reward_settings has no effect: reward = {name} takes none")
    return found  # type: ignore[no-any-return]


def configured_reward(elastic: "DictConfig") -> Reward | GroupReward:
    """The reward of the section `elastic` of verl's configuration."""
    from omegaconf import OmegaConf

    given = OmegaConf.to_container(elastic.get("reward_settings") or OmegaConf.create())
    return reward_of(elastic.reward, **cast("dict[str, Any]", given))


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], **_: Any
) -> dict[str, Any]:
    """verl's `reward.custom_reward_function`, for rollouts other than ours, which come with their score. It keeps verl
    from choosing one of its scorers, some of which evaluate model text. verl decoded `solution_str` without special
    tokens: a model with a special think-end gets no credit here. Raises GradingFailed when the grader failed."""
    graded = grade(extra_info["grader"], solution_str, ground_truth)
    return {"score": graded.score, "acc": graded.score}


def measures(rollout: Rollout) -> dict[str, float]:
    """Numbers of one rollout. verl averages those of validation per data source, `trainer.py` those of training."""
    trajectory, request = rollout.trajectory, rollout.request
    measured = {
        "acc": rollout.grade.score,
        "answered": float(rollout.grade.status not in UNANSWERED),
        "grading_timeout": float(rollout.grade.status is GradeStatus.TIMEOUT),
        "think_tokens": float(trajectory.think_tokens),
        "solution_tokens": float(trajectory.solution_tokens),
        "forced": float(trajectory.think_finish is not ThinkFinish.CLOSED),
        "solution_cut": float(trajectory.solution_finish is SolutionFinish.LENGTH),
    }
    if request is not None:
        measured["asked_tokens"] = float(request.tokens)
        measured["length_error"] = float(abs(rollout.length - request.tokens))
    return measured


def thought_measures(
    answers: Sequence[Sequence[Rollout]], cuts: Sequence[int], weights: Sequence[float]
) -> dict[str, float]:
    """Numbers of one thought with answers graded by cut: the means of `measures` under the whole budget, the
    accuracy at each cut, and their weighted sum `anytime_acc`."""
    whole = [measures(rollout) for rollout in answers[-1]]
    accuracies = [float(np.mean([rollout.grade.score for rollout in of_cut])) for of_cut in answers]
    return {
        **{name: float(np.mean([of_answer[name] for of_answer in whole])) for name in whole[0]},
        **{f"acc_at_{cut}": accuracy for cut, accuracy in zip(cuts, accuracies, strict=True)},
        "anytime_acc": float(np.dot(weights, accuracies)),
    }
