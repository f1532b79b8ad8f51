"""GRPO's parameters, and that verl accepts what they are translated into."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.training.grpo.config import overrides
from elastic_core.training.grpo.parameters import GrpoParameters
from elastic_core.training.launch import job_environment
from elastic_core.training.requirements import InsufficientResources, Resources, check_nodes, required_resources
from tests import training_rollouts

MINIATURE: dict[str, Any] = {
    "budget": "48+32",
    "steps": 50,
    "batch_size": 32,
    "mini_batch_size": 32,
    "learning_rate": 1e-4,
    "kl_coefficient": 0,
    "entropy_coefficient": 0,
    "temperature": 1.0,
    "prompt_tokens": 32,
    "reuse_rollout_logprobs": True,
    "validate_every": 0,
    "device": "cpu",
    "gpus_per_node": 1,
    "rollout_workers": 1,
}


def composed(directory: Path, **changes: Any) -> Any:
    return training_rollouts.composed(GrpoParameters(**changes), directory, mlflow=True)


def test_one_pass_gives_rollouts_to_an_engine_that_closes_thoughts(tmp_path: Path) -> None:
    two, one = (composed(tmp_path, **MINIATURE, one_pass=one_pass) for one_pass in (False, True))
    assert (two.elastic.strategy, one.elastic.strategy) == ("separate", "separate_native")
    kwargs = one.actor_rollout_ref.rollout.engine_kwargs.vllm
    assert list(kwargs.logits_processors) == ["elastic_core.engines.budgets.v1:SeparateBudgets"]
    assert set(job_environment(one)) - set(job_environment(two)) == {"VLLM_USE_V2_MODEL_RUNNER"}
    assert composed(tmp_path, one_pass=True).actor_rollout_ref.rollout.engine_kwargs.vllm.logits_processors
    with pytest.raises(ValidationError, match="one_pass is of one answer under separate budgets"):
        GrpoParameters(one_pass=True, strategy="vanilla")


def test_the_miniature_trains_without_sleep_mode_or_chunked_prefill(tmp_path: Path) -> None:
    config = composed(tmp_path, **MINIATURE)
    rollout = config.actor_rollout_ref.rollout
    assert not rollout.enable_chunked_prefill and not rollout.enable_sleep_mode
    assert config.trainer.logger == ["console", "mlflow"]


@pytest.mark.parametrize(("vocabulary", "megabytes"), [(70, 32), (32768, 32), (151936, 38), (151937, 38), (160000, 40)])
def test_on_a_cpu_new_weights_are_sent_in_blocks_that_hold_the_largest_tensor(
    vocabulary: int, megabytes: int, tmp_path: Path
) -> None:
    save_file({"small": torch.ones(3), "embedding": torch.zeros(vocabulary, 64)}, tmp_path / "model.safetensors")
    changes = overrides(
        GrpoParameters(**MINIATURE), model=tmp_path, train_files=[], validation_files=[], out_dir=tmp_path, run_name=""
    )
    block = changes["actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"]
    assert block == megabytes and block * 2**20 >= vocabulary * 64 * 4
    # Above ten million parameters one pass over all logits costs less than two in chunks.
    assert changes["actor_rollout_ref.model.use_fused_kernels"] == (vocabulary < 160000)


def test_defaults_are_the_papers(tmp_path: Path) -> None:
    """The others are in test_preset_verl, by the preset that sets none of them."""
    config = composed(tmp_path)
    assert config.algorithm.adv_estimator == "elastic_grpo_group"
    assert config.actor_rollout_ref.actor.loss_agg_mode == "token-mean"
    assert not config.algorithm.use_kl_in_reward and not config.algorithm.rollout_correction.bypass_mode


@pytest.mark.parametrize(
    ("budget", "response"), [("1k+1k", 1024 + 1 + 1024), ("512..3k+1k", 3072 + 1 + 1024), ("0+32", 33)]
)
def test_a_response_holds_the_largest_budget_and_a_forced_think_end(budget: str, response: int) -> None:
    assert GrpoParameters(budget=budget).response_tokens == response


def test_a_request_for_a_length_has_room_in_the_context_and_shortens_no_problem(tmp_path: Path) -> None:
    config = composed(tmp_path, strategy="vanilla", budget="4000+96", l1={"form": "exact"})
    rollout = config.actor_rollout_ref.rollout
    assert config.data.max_prompt_length == 1024 < rollout.prompt_length
    assert rollout.max_model_len == rollout.prompt_length + 4097
    assert config.elastic.l1 == {"form": "exact", "lengths": "100..4000", "penalty": 3e-4}


@pytest.mark.parametrize(
    ("changes", "fixed"),
    [
        ({"budget": "1k+1k"}, Budget(1024, 1024)),
        ({"budget": "512..3k+1k"}, None),
        ({"strategy": "vanilla", "l1": {"form": "max"}}, None),
    ],
)
def test_a_budget_is_claimed_only_where_there_is_one(changes: dict[str, Any], fixed: Budget | None) -> None:
    assert GrpoParameters(**changes).fixed_budget == fixed


def test_checkpoints_hold_what_resuming_and_exporting_need(tmp_path: Path) -> None:
    config = composed(tmp_path, **MINIATURE)
    assert set(config.actor_rollout_ref.actor.checkpoint.save_contents) == {"model", "optimizer", "extra", "hf_model"}
    assert config.trainer.resume_mode == "auto" and config.trainer.save_freq > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batchsize": 3}, "batchsize"),
        ({"batch_size": 100}, "batch_size = 100 is not a multiple of mini_batch_size = 64"),
        ({"gpus_per_node": 7}, r"mini_batch_size \* group_size = 512 is not a multiple of nodes \* gpus_per_node = 7"),
        ({"tensor_parallel": 3}, r"nodes \* gpus_per_node = 8 is not a multiple of tensor_parallel = 3"),
        ({"budget": "unlimited"}, "is not a training budget"),
        ({"budget": "1k"}, "is not a budget"),
        ({"budget": "3k..512+1k"}, r'"3072\.\.512" is an empty range'),
        ({"l1": {"form": "exact"}}, "strategy = separate, expected vanilla"),
        ({"strategy": "vanilla", "l1": {"form": "exact", "lengths": "0..9"}}, "asks for no tokens"),
        ({"device": "cpu", "tensor_parallel": 2}, "tensor_parallel = 2 on a CPU; expected 1"),
        ({"tokens_per_device": 3072}, "cannot hold one sequence of 3073 tokens"),
        ({"group_size": 1}, "group_size"),
        (
            {"rollout_correction": {}, "reuse_rollout_logprobs": True},
            "rollout_correction needs the trainer's probabilities",
        ),
        ({"rollout_correction": {}, "train_on_forced_end": True}, "no sampler gave its probability"),
        ({"rollout_correction": {"rollout_rs": "token_k1"}}, "both rollout_rs and rollout_rs_threshold"),
        ({"rollout_correction": {"rollout_rs": "token_k9", "rollout_rs_threshold": 1}}, "rollout_rs"),
        ({"rollout_correction": {"rollout_is": None}}, "corrects nothing"),
        ({"lora_rank": 8, "reuse_rollout_logprobs": True}, "lora_rank needs the trainer's probabilities"),
        ({"lora_alpha": 8}, "no effect without lora_rank"),
        ({"max_num_gen_batches": 3}, "no effect without filter_groups"),
        ({"credit": "whole"}, "credit has no effect: algorithm = grpo"),
    ],
)
def test_what_cannot_train_or_has_no_effect_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GrpoParameters(**changes)


def test_every_parameter_is_described() -> None:
    assert all(field.description for field in GrpoParameters.model_fields.values())


def test_resources_count_what_verl_reserves(tmp_path: Path) -> None:
    assert required_resources(composed(tmp_path, **MINIATURE)) == Resources(nodes=1, gpus=1, cpus=3, shared_cpus=3)
    two_nodes = required_resources(composed(tmp_path, nodes=2))
    assert two_nodes == Resources(nodes=2, gpus=8, cpus=24, shared_cpus=4)


@pytest.mark.parametrize(
    ("nodes", "fits"),
    [
        ([(1, 6)], True),
        ([(1, 5)], False),
        ([(0, 64)], False),
        ([(1, 3), (0, 3)], True),
        ([], False),
    ],
)
def test_a_placement_that_can_never_come_is_refused(nodes: list[tuple[int, int]], fits: bool) -> None:
    required = Resources(nodes=1, gpus=1, cpus=3, shared_cpus=3)
    if fits:
        check_nodes(nodes, required)
        return
    with pytest.raises(
        InsufficientResources, match=r"needs 1 node.* 6 logical CPUs over all nodes; the Ray cluster has"
    ):
        check_nodes(nodes, required)


@pytest.mark.parametrize(
    "given",
    [
        {"actor_rollout_ref": {"actor": {"ppo_epochs": 2}}},
        {"actor_rollout_ref.actor.ppo_epochs": 2},
        {"actor_rollout_ref.actor": {"ppo_epochs": 2}},
        {"+actor_rollout_ref.actor.ppo_epochs": 2},
    ],
)
def test_any_setting_of_verl_can_be_given_in_tables_or_by_its_dotted_name(given: Any, tmp_path: Path) -> None:
    assert composed(tmp_path, **MINIATURE, verl=given).actor_rollout_ref.actor.ppo_epochs == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"actor_rollout_ref.actor.ppo_epoch": 2},
            r"verl has no such setting, did you mean .ppo_epochs",
        ),
        ({"actor_rollout_ref.actor.ppo_epochs": "two"}, r"expected a value like verl's own, 1"),
        ({"actor_rollout_ref.actor.use_torch_compile": 1}, "expected a value like verl's own, True"),
        ({"actor_rollout_ref.actor.clip_ratio_low": 0.1}, r"other settings of \[train\] make .*clip_ratio_low 0.2"),
        ({"actor_rollout_ref.actor.optim": {"lr": 1e-3}}, r"make actor_rollout_ref.actor.optim.lr 0.0001"),
        ({"elastic.budget": "9+9"}, r"make elastic.budget '48\+32'"),
        ({"actor_rollout_ref.actor.checkpoint": "none"}, "make actor_rollout_ref.actor.checkpoint.save_contents"),
    ],
)
def test_what_verl_does_not_know_or_we_set_is_refused_by_name(given: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        composed(tmp_path, **MINIATURE, verl=given)


def test_further_settings_change_the_key_of_a_training_and_none_do_not() -> None:
    old, new = GrpoParameters(), GrpoParameters(verl={"actor_rollout_ref.actor.ppo_epochs": 2}, filter_groups=True)
    newer = {"verl", "filter_groups", "max_num_gen_batches", "rollout_correction", "lora_rank", "loss_mode", "credit"}
    assert newer.isdisjoint(old.model_dump()) and {"verl", "filter_groups"} <= new.model_dump().keys()


def test_tensor_parallel_rollouts_do_without_the_fused_all_reduce_that_would_be_compiled(tmp_path: Path) -> None:
    kwargs = composed(tmp_path, tensor_parallel=2).actor_rollout_ref.rollout.engine_kwargs.vllm
    assert json.loads(kwargs.compilation_config) == {"pass_config": {"fuse_allreduce_rms": False}}
    assert not composed(tmp_path).actor_rollout_ref.rollout.engine_kwargs.vllm
