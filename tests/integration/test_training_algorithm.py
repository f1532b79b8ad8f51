"""The small print of GRPO on forced samples, with verl's own tensors and loss."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, get_adv_estimator_fn
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.torch_functional import logprobs_from_logits
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import response_from_nested

import elastic_core.training.grpo.trainer  # noqa: F401  # It registers our estimators.
from elastic_core.training.grpo.parameters import GrpoParameters
from elastic_core.training.grpo.replay_buffer import to_sample, with_variance
from tests.training_rollouts import BASE, BOX, END, EOS, WORD, Server, composed, rollout

FORCED = (*[WORD] * 6, *BOX, EOS)
"""What a model writes that does not close its thought within t = 6."""
CLOSED = (WORD, END, *BOX, EOS)


@pytest.fixture(scope="module")
def config() -> Any:
    return composed(GrpoParameters())


def jagged(rows: list[Any], dtype: torch.dtype) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(row, dtype=dtype) for row in rows], layout=torch.jagged)


def policy_loss(config: Any, outputs: list[Any], log_probs: torch.Tensor, **fields: torch.Tensor) -> torch.Tensor:
    """verl's loss of the rollouts as one mini-batch.

    Args:
        log_probs: of every token of prompts and responses, one behind the other, as the trainer computes them.
        fields: advantages, old_log_probs, ref_log_prob; the current policy's and 1 unless given.
    """
    mask = jagged([output.response_mask for output in outputs], torch.int64)
    lengths = [len(output.prompt_ids) + len(output.response_ids) for output in outputs]
    offsets = torch.tensor([0, *np.cumsum(lengths)])
    model_output = torch.nested.nested_tensor_from_jagged(log_probs, offsets)
    current = response_from_nested(model_output.detach(), mask)
    data = tu.get_tensordict(
        {
            "prompts": jagged([output.prompt_ids for output in outputs], torch.int64),
            "responses": jagged([output.response_ids for output in outputs], torch.int64),
            "response_mask": mask,
            "advantages": jagged([[1.0] * len(output.response_ids) for output in outputs], torch.float32),
            "old_log_probs": current,
            "ref_log_prob": current - 0.1,
            **fields,
        },
        # As verl's engine counts them: over loss_mask, which is the response mask.
        {"dp_size": 1, "batch_num_tokens": int(mask.values().sum()), "global_batch_size": len(outputs)},
    )
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    return ppo_loss(actor, {"log_probs": model_output}, data)[0]


def gradient(config: Any, outputs: list[Any], **fields: torch.Tensor) -> torch.Tensor:
    """Of the loss, by token of prompts and responses."""
    count = sum(len(output.prompt_ids) + len(output.response_ids) for output in outputs)
    log_probs = torch.full((count,), -0.5, requires_grad=True)
    policy_loss(config, outputs, log_probs, **fields).backward()
    assert log_probs.grad is not None
    return log_probs.grad


def test_forced_tokens_are_masked_out_of_policy_and_kl_loss(config: Any) -> None:
    output = rollout(Server(*FORCED))
    grad = gradient(config, [output])
    # The log-probability of a token stands one place before it.
    of_response = grad[len(output.prompt_ids) - 1 : -1]
    assert output.response_ids[6] == END and output.response_mask[6] == 0
    assert [bool(value) for value in of_response] == [bool(mask) for mask in output.response_mask]
    assert not grad[: len(output.prompt_ids) - 1].any()


def test_what_is_trained_on_enters_the_loss_and_nothing_else(config: Any) -> None:
    trained = rollout(Server(*FORCED), masks={"train_on_forced_end": True})
    grad = gradient(config, [trained])
    assert grad[len(trained.prompt_ids) - 1 : -1].all(), "the forced think-end too"
    cut = rollout(Server(*[WORD] * 99), masks={"mask_truncated_samples": True})
    both = [cut, rollout(Server(*CLOSED))]
    grad = gradient(config, both)
    length = len(cut.prompt_ids) + len(cut.response_ids)
    assert not any(cut.response_mask) and not grad[:length].any()
    assert torch.equal(grad[length:], gradient(config, both[1:])), "the mean is over what is left"


def test_the_loss_is_a_mean_over_sampled_tokens_only(config: Any) -> None:
    outputs = [rollout(Server(*FORCED)), rollout(Server(*CLOSED))]
    sampled = sum(sum(output.response_mask) for output in outputs)
    assert sampled == sum(len(output.response_ids) for output in outputs) - 1
    reference = jagged([[-0.5] * len(output.response_ids) for output in outputs], torch.float32)
    grad = gradient(config, outputs, ref_log_prob=reference)
    # With ratio 1, advantage 1 and the reference's own policy a token's gradient is its share of the mean.
    assert grad[grad != 0].tolist() == pytest.approx([-1 / sampled] * sampled)


class Policy(Server):
    """The miniature itself, greedy, with the log-probabilities that it samples at."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    async def generate(self, **request: Any) -> SimpleNamespace:
        self.requests.append(request)
        params, tokens, logprobs = request["sampling_params"], list[int](), list[float]()
        while len(tokens) < params["max_tokens"] and (not tokens or tokens[-1] not in params["stop_token_ids"]):
            with torch.no_grad():
                logits = self.model(torch.tensor([[*request["prompt_ids"], *tokens]])).logits[0, -1]
            tokens.append(int(logits.argmax()))
            logprobs.append(float(logits.log_softmax(-1).max()))
        return SimpleNamespace(token_ids=tokens, log_probs=logprobs, stop_reason="completed", extra_fields={})


def test_log_probabilities_of_sampler_and_trainer_stand_token_by_token_side_by_side() -> None:
    """Old and reference log-probabilities come from one pass over prompt and response, the sampler's from two requests
    with a forced token between them."""
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).eval()
    output = rollout(Policy(model))
    assert output.response_mask == [1] * 6 + [0] + [1] * (len(output.response_ids) - 7)
    ids = torch.tensor([[*output.prompt_ids, *output.response_ids]])
    with torch.no_grad():
        whole = logprobs_from_logits(model(ids).logits, torch.roll(ids, -1, dims=1))[0]
    mask = jagged([output.response_mask], torch.int64)
    nested = torch.nested.nested_tensor_from_jagged(whole, torch.tensor([0, ids.shape[1]]))
    trainer = response_from_nested(nested, mask).values()
    sampled = torch.tensor(output.response_mask, dtype=torch.bool)
    assert trainer[sampled].tolist() == pytest.approx(
        [value for value, kept in zip(output.response_logprobs, output.response_mask, strict=True) if kept], abs=1e-4
    )
    assert output.response_logprobs[6] == 0.0 and trainer[6] < 0


def advantages(config: Any, groups: list[list[float]], mask: torch.Tensor | None = None) -> torch.Tensor:
    """(rollouts, tokens) by the estimator that the composed configuration names."""
    rewards = torch.zeros(sum(map(len, groups)), 4)
    rewards[:, -1] = torch.tensor([reward for group in groups for reward in group])
    index = np.array([f"problem {i}" for i, group in enumerate(groups) for _ in group], dtype=object)
    mask = torch.ones_like(rewards) if mask is None else mask
    return get_adv_estimator_fn(config.algorithm.adv_estimator)(rewards, mask, index=index, config=config.algorithm)[0]


REWARDS = st.floats(-1.5, 1, width=32)
GROUPS = st.integers(2, 16).flatmap(
    lambda n: st.lists(st.lists(REWARDS, min_size=n, max_size=n), max_size=4, min_size=1)
)


@given(GROUPS)
def test_advantages_are_rewards_minus_mean_over_deviation_of_their_group(
    config: Any, groups: list[list[float]]
) -> None:
    expected = [(r - np.mean(group)) / (np.std(group, ddof=1) + 1e-6) for group in groups for r in group]
    assert advantages(config, groups)[:, 0].tolist() == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_with_variance_they_are_verls_own(config: Any) -> None:
    groups = [[1.0, 0.0, 0.0, 1.0], [0.25, -0.5, 1.0, 0.125]]
    rewards = torch.tensor(groups).reshape(-1, 1)
    index = np.array(["a"] * 4 + ["b"] * 4, dtype=object)
    verls, _ = compute_grpo_outcome_advantage(rewards, torch.ones_like(rewards), index)
    assert torch.allclose(advantages(config, groups)[:, :1], verls, atol=1e-5)


@given(st.integers(2, 32), REWARDS)
def test_a_group_without_variance_has_advantage_zero_whatever_its_reward(config: Any, size: int, reward: float) -> None:
    assert not advantages(config, [[reward] * size]).any()


def test_groups_without_variance_are_counted() -> None:
    rows = zip("abacbc", [1.0, 0.0, 0.0, 0.7, 0.0, 0.7], strict=True)
    assert with_variance((problem, {"score": score}) for problem, score in rows) == ["a"]


@pytest.mark.parametrize(
    ("taught", "sampled", "expected"),
    [
        (32, 32, 0),
        (40, 64, 0),
        (24, 32, 11),  # 8 are missing, and 3 of 4 teach.
        (1, 32, 32),  # Never more than a batch at a time.
        (0, 32, 32),
        (16, 72, 24),  # 10 batches of 8 problems are the limit here: 8 are left.
    ],
)
def test_dynamic_sampling_asks_for_what_should_fill_the_batch(taught: int, sampled: int, expected: int) -> None:
    limit = 3 if sampled == 72 else 10
    assert to_sample(taught, sampled, 32, limit) == expected


def test_forced_tokens_have_no_advantage(config: Any) -> None:
    mask = torch.tensor([[1, 0, 1, 1], [1, 1, 1, 0]])
    assert (advantages(config, [[1.0, 0.0]], mask) != 0).tolist() == mask.bool().tolist()


def test_batch_wise_advantages_are_verls_reinforce_plus_plus_with_a_baseline() -> None:
    rewards, mask = torch.zeros(6, 5), torch.tensor([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]] * 3)
    rewards[:, -1] = torch.tensor([1.0, 0.0, 0.7, 0.2, 1.0, 1.0])
    index = np.array(["a", "a", "b", "b", "c", "c"])
    ours, theirs = (
        get_adv_estimator_fn(name)(token_level_rewards=rewards.clone(), response_mask=mask, index=index, config=None)[0]
        for name in ("elastic_grpo_batch", "reinforce_plus_plus_baseline")
    )
    assert torch.allclose(ours, theirs, atol=1e-5) and ours[mask == 0].eq(0).all()
    assert ours[mask == 1].mean().abs() < 1e-6 and ours[mask == 1].std() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", ["elastic_grpo_batch", "elastic_grpo_none", "elastic_grpo_group"])
def test_a_batch_without_variance_has_no_advantages(name: str) -> None:
    rewards = torch.tensor([[0.0, 0.7]] * 4)
    found, _ = get_adv_estimator_fn(name)(
        token_level_rewards=rewards, response_mask=torch.ones(4, 2), index=np.array(["a", "a", "b", "b"]), config=None
    )
    assert not found.any()


def test_undivided_advantages_are_rewards_less_their_groups_mean() -> None:
    rewards = torch.tensor([[1.0], [0.0], [0.0], [0.0]])
    found, _ = get_adv_estimator_fn("elastic_grpo_none")(
        token_level_rewards=rewards, response_mask=torch.ones(4, 1), index=np.array(["a"] * 4), config=None
    )
    assert found[:, 0].tolist() == [0.75, -0.25, -0.25, -0.25]


def test_rollout_correction_weighs_sampled_tokens_and_leaves_forced_ones_alone() -> None:
    """A forced token has log-probability 0 from the sampler: its ratio, were it weighed, would be anything."""
    output = rollout(Server(*FORCED))
    mask = torch.tensor([output.response_mask])
    sampler = torch.where(mask.bool(), -1.0, 0.0)
    trainer = sampler + torch.tensor([[0.0, 2.0, -0.5, 0.0, 0.0, 0.0, -30.0] + [0.0] * (mask.shape[1] - 7)])
    weights, _, metrics = compute_rollout_correction_and_rejection_mask(
        old_log_prob=trainer, rollout_log_prob=sampler, response_mask=mask, rollout_is="token", rollout_is_threshold=2.0
    )
    found = weights.batch["rollout_is_weights"][0] * mask[0]
    assert found.tolist() == pytest.approx([1, 2, np.exp(-0.5), 1, 1, 1, 0] + [1] * (mask.shape[1] - 7))
    assert metrics["rollout_corr/rollout_is_min"] == pytest.approx(np.exp(-0.5))
