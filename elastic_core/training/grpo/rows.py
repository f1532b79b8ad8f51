"""What rollouts leave for verl where thoughts are cut: several rows each, whose tokens have their advantages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from elastic_core.rewards import Grade
from elastic_core.training.algorithms import anytime, reo
from elastic_core.training.algorithms.anytime import Answered, Cuts
from elastic_core.training.grpo.reward import measures

Thinking = Callable[[np.ndarray, Sequence[float]], np.ndarray]
"""Advantages of thoughts' segments from their scores by cut, and the cuts' weights."""

THINKING_ADVANTAGES: dict[str, Thinking] = {
    "anytime": anytime.thinking_advantages,
    "reo": reo.thinking_advantages,
}
"""By algorithm."""


class RowOutput(AgentLoopOutput):  # type: ignore[misc]
    """A row with the advantage of each response token in the place of its reward, where `trainer.given_advantages`
    finds it. The reward would not arrive: verl 0.9.1 gives all rows of a rollout that of the last one."""

    advantages: list[float]

    def as_dict(self) -> dict[str, Any]:
        """See verl's."""
        fields: dict[str, Any] = super().as_dict()
        fields["rm_scores"] = torch.tensor(fields.pop("advantages"), dtype=torch.float32)
        return fields


def of_rollout(measured: Mapping[str, float], score: float | None, generated: int) -> dict[str, Any]:
    """What the trainer reads of a row.

    Args:
        measured: of its rollout; nothing in all rows of a rollout but one.
        score: None in rows that have none of their own.
        generated: tokens sampled for it.
    """
    return {"measured": dict(measured), "score": score, "generated_tokens": generated}


def outputs(
    thoughts: Sequence[Answered],
    grades: Sequence[Sequence[Sequence[Grade]]],
    cuts: Cuts,
    *,
    thinking: Thinking,
    truncated: bool,
    generated: Sequence[int],
    shared: Mapping[str, Any],
    versions: Mapping[str, Any],
) -> list[RowOutput]:
    """The rows of one problem.

    Args:
        grades: by thought, cut and answer.
        thinking, truncated: see `anytime.rows`.
        generated: tokens sampled for each thought and its answers.
        shared: fields of all rows.
        versions: of the weights that answered, verl's bookkeeping.
    """
    scores = np.array([[[grade.score for grade in of_cut] for of_cut in of_thought] for of_thought in grades])
    found: list[RowOutput] = []
    of_problem = anytime.rows(thoughts, scores, cuts, thinking=thinking, truncated=truncated)
    for number, of_thought in enumerate(of_problem):
        for place, row in enumerate(of_thought):
            first = place == 0
            measured = thought_measures(thoughts[number], grades[number], cuts) if first else {}
            found.append(
                RowOutput(
                    prompt_ids=list(row.prompt_ids),
                    response_ids=list(row.response_ids),
                    response_mask=row.mask,
                    response_logprobs=None if row.logprobs is None else list(row.logprobs),
                    advantages=row.advantages,
                    reward_score=0.0,  # Without one verl asks reward workers, of which there are none.
                    extra_fields={
                        **versions,
                        **of_rollout(measured, row.score, generated[number] if first else 0),
                        "reward_extra_info": {},
                        "turn_scores": [],
                        "tool_rewards": [],
                    },
                    **shared,
                )
            )
    return found


def thought_measures(answered: Answered, grades: Sequence[Sequence[Grade]], cuts: Cuts) -> dict[str, float]:
    """Numbers of one thought: those of its answers under the whole budget, as of other rollouts; the accuracy at each
    cut, and `anytime_acc`, their weighted sum, which is what is trained for."""
    whole = [measures(*pair) for pair in zip(answered[-1], grades[-1], strict=True)]
    by_cut = [float(np.mean([grade.score for grade in of_cut])) for of_cut in grades]
    return {
        **{name: float(np.mean([of_answer[name] for of_answer in whole])) for name in whole[0]},
        **{f"acc_at_{cut}": accuracy for cut, accuracy in zip(cuts.at, by_cut, strict=True)},
        "anytime_acc": float(np.dot(cuts.weights, by_cut)),
    }
