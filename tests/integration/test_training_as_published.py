"""`train.as_published` beside the published script (Elastic-Reasoning 8871a3c): what its own functions made of the same
scripted responses, in rollout, mask, micro-batches and loss, on one rank."""

from typing import Any

import pytest
import torch
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss

from elastic_core.training.grpo.parameters import GrpoParameters
from elastic_core.training.micro_batches import MEAN_OF_EACH, rearrange_micro_batches
from tests.integration.test_training_algorithm import jagged
from tests.training_rollouts import BOX, END, EOS, WORD, Server, composed, rollout

STREAMS = {
    "closed, ended": (WORD, END, *BOX, EOS),
    "closed, cut": (WORD, WORD, END, *[WORD] * 99),
    "forced, ended": (*[WORD] * 6, *BOX, EOS),
    "forced, cut": (WORD,) * 99,
    "end of text in the thought": (WORD, WORD, EOS, *BOX, EOS),
    "nothing but its end": (END, EOS),
    "closed at t, cut": (*[WORD] * 5, END, *[WORD] * 99),
    "forced, ended at s": (*[WORD] * 13, EOS),
}
"""What a model writes under 6+8."""
LIMIT = 48
"""Tokens of a micro-batch."""
TRAINED = [7, 12, 12, 16, 3, 2, 15, 15]
"""Tokens of each response in their mask, which are always its first."""
GRADIENTS = [-0.4125026, 0.6827486, -0.7657324, 1.3661374, -0.3791878, 0.2817992, -1.304125, 1.8552332]
"""Of their loss by the log-probabilities of each response's tokens, added up."""
ENTROPY_GRADIENTS = [-0.00318182, -0.005, -0.005, -0.00888889, -0.00166667, -0.00111111, -0.00681818, -0.00833333]
"""The same by the entropies."""


def values(kind: str, row: int, length: int) -> list[float]:
    """Log-probabilities of a response's tokens: current, old, or the reference's. Their ratios leave every bound."""
    a, b, c = {"log_probs": (7, 3, 11), "old_log_probs": (5, 2, 13), "ref_log_prob": (3, 4, 7)}[kind]
    return [-0.05 - (a * row + b * token) % c / 10 for token in range(length)]


def advantage(row: int) -> float:
    return (-1) ** row * (1 + row / 10)


@pytest.fixture(scope="module")
def outputs() -> list[Any]:
    masks = {"as_published": True, "train_on_forced_end": True}
    return [rollout(Server(*stream), masks=masks, response_length=16) for stream in STREAMS.values()]


def test_a_cut_solution_has_one_end_of_text_and_one_that_ended_none(outputs: list[Any]) -> None:
    assert [len(output.response_ids) for output in outputs] == TRAINED
    assert all(all(output.response_mask) for output in outputs)
    assert [list(output.response_ids).count(EOS) for output in outputs] == [1] * len(outputs)
    assert all(output.response_ids[-1] == EOS for output in outputs)


def test_a_thought_that_ended_the_text_is_worth_nothing(outputs: list[Any]) -> None:
    rewards = dict(zip(STREAMS, (output.reward_score for output in outputs), strict=True))
    assert rewards == dict.fromkeys(STREAMS, 0.0) | {"closed, ended": 1.0, "forced, ended": 1.0}
    assert rollout(Server(*STREAMS["end of text in the thought"])).reward_score == 1.0


@pytest.mark.parametrize("attention", ["sdpa", "flash_attention_2"])
def test_loss_is_the_published_one_to_rounding(outputs: list[Any], attention: str) -> None:
    parameters = GrpoParameters(as_published=True, entropy_coefficient=0.01, kl_coefficient=0.1)
    config = composed(parameters)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    lengths = [len(output.response_ids) for output in outputs]
    fields = {
        kind: jagged([values(kind, row, length) for row, length in enumerate(lengths)], torch.float32)
        for kind in ("old_log_probs", "ref_log_prob")
    }
    mask = jagged([output.response_mask for output in outputs], torch.int64)
    advantages = jagged([[advantage(row)] * length for row, length in enumerate(lengths)], torch.float32)
    whole = [[*output.prompt_ids, *output.response_ids] for output in outputs]
    batch = tu.get_tensordict(
        {
            "input_ids": jagged(whole, torch.int64),
            "prompts": jagged([output.prompt_ids for output in outputs], torch.int64),
            "responses": jagged([output.response_ids for output in outputs], torch.int64),
            "response_mask": mask,
            "loss_mask": mask,
            "advantages": advantages,
            **fields,
        },
        {
            "dp_size": 1,
            "batch_num_tokens": int(mask.values().sum()),
            "global_batch_size": len(outputs),
            "use_remove_padding": attention == "flash_attention_2",
            MEAN_OF_EACH: True,
        },
    )
    # verl's engine gives a value for each token of prompt and response; that of a token stands one place before it.
    of_rows: list[dict[str, torch.Tensor]] = []
    for row, (ids, length) in enumerate(zip(whole, lengths, strict=True)):
        before = [-9.0] * (len(ids) - length - 1)
        log_probs = torch.tensor([*before, *values("log_probs", row, length), -9.0], requires_grad=True)
        of_rows.append({"log_probs": log_probs, "entropy": torch.ones(len(ids), requires_grad=True)})
    parts, batches = rearrange_micro_batches(batch, LIMIT)
    for part, rows in zip(parts, batches, strict=True):
        output = {
            kind: torch.nested.as_nested_tensor([of_rows[row][kind] for row in rows], layout=torch.jagged)
            for kind in ("log_probs", "entropy")
        }
        ppo_loss(actor, output, part)[0].backward()
    for kind, expected in (("log_probs", GRADIENTS), ("entropy", ENTROPY_GRADIENTS)):
        assert [float(of_row[kind].grad.sum()) for of_row in of_rows] == pytest.approx(expected, rel=1e-5)
