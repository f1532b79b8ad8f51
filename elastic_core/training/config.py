"""GRPO training under a budget as typed parameters, and their translation into verl's own configuration.

The algorithm is GRPO: advantages are rewards minus the group's mean, over its standard deviation (advantage.py); PPO's
clipped ratio is against the policy that sampled; the KL penalty is a loss term, not part of the reward.
"""

import json
from collections.abc import Sequence
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Self, TypedDict, Unpack

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from elastic_core.budget import Budget, TrainingBudget
from elastic_core.engines.parameters import CPU_EXECUTOR
from elastic_core.safetensors import tensors
from elastic_core.training.l1 import PROMPT_TOKENS, L1Parameters

if TYPE_CHECKING:
    from omegaconf import DictConfig


DEADLINES = {"start_timeout_seconds", "step_timeout_seconds"}
"""Settings of whoever follows a training, which change nothing in it."""

RESOURCES = DEADLINES | {
    *("nodes", "gpus_per_node", "tensor_parallel", "rollout_workers", "max_sequences"),
    *("memory_fraction", "tokens_per_device", "offload", "attention", "keep_checkpoints"),
}
"""What a training runs on, and how fast. What it learns is the same, up to rounding."""


class GrpoParameters(BaseModel):
    """Defaults are those of E1-Math-1.5B (Elastic Reasoning, section 4.1)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: Literal["separate", "vanilla"] = Field(
        "separate", description="How rollouts are decoded; vanilla trains under plain truncation at t + s."
    )
    budget: str = Field(
        "1k+1k",
        description='Thinking and solution tokens of a rollout, "t+s"; "512..3k+1k" draws t per problem and step, the '
        "same for all rollouts of the problem.",
    )
    l1: L1Parameters | None = Field(
        None, description="Ask for a length in the prompt and reward it, as L1 does; needs strategy vanilla."
    )
    steps: int = Field(200, ge=1, description="Training steps: rollouts of one batch, then updates on it.")
    batch_size: int = Field(128, ge=1, description="Problems per step.")
    group_size: int = Field(8, ge=2, description="Rollouts per problem, among which rewards are compared.")
    mini_batch_size: int = Field(64, ge=1, description="Problems per optimiser update; divides batch_size.")
    learning_rate: float = Field(1e-6, gt=0, description="AdamW's, constant after the warm-up.")
    warmup_steps: int = Field(
        0, ge=0, description="Steps of linear warm-up: all updates of a step have one rate, and the first step's is 0."
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW's.")
    clip_grad: float = Field(1.0, gt=0, description="Largest gradient norm.")
    clip_low: float = Field(0.2, gt=0, lt=1, description="PPO clips the probability ratio below 1 - clip_low.")
    clip_high: float = Field(0.2, gt=0, description="PPO clips the probability ratio above 1 + clip_high.")
    kl_coefficient: float = Field(
        0.001, ge=0, description="Weight of the low-variance KL estimate to the initial model; 0 loads no reference."
    )
    entropy_coefficient: float = Field(0.001, ge=0, description="Weight of the entropy bonus.")
    temperature: float = Field(0.6, gt=0, description="Of training rollouts; log-probabilities are taken at it too.")
    reuse_rollout_logprobs: bool = Field(
        False,
        description="Take the sampler's log-probabilities as those of the old policy instead of computing them again: "
        "faster, exact only where sampler and trainer agree (float32).",
    )
    prompt_tokens: int = Field(1024, ge=1, description="Longest prompt in tokens; longer problems are left out.")
    save_every: int = Field(10, ge=1, description="Steps between checkpoints: what a crash can cost.")
    keep_checkpoints: int = Field(2, ge=1, description="Checkpoints kept; older ones are deleted.")
    validate_every: int = Field(10, ge=0, description="Steps between validations; 0 for none.")
    validate_first: bool = Field(
        True, description="Validate before the first step too, which is where curves begin; not without validate_every."
    )
    validation_problems: int | None = Field(
        None, gt=0, description="Problems to validate on, drawn by the seed from all sets together; all by default."
    )
    validation_samples: int = Field(8, ge=1, description="Rollouts per validation problem.")
    validation_temperature: float = Field(0.6, ge=0, description="Of validation rollouts; 0 is greedy.")
    validation_top_p: float = Field(0.95, gt=0, le=1, description="Nucleus of validation rollouts.")
    seed: int = Field(0, ge=0, lt=2**31, description="Of data order and rollouts.")
    device: Literal["gpu", "cpu"] = Field("gpu", description="What trains and generates.")
    nodes: int = Field(1, ge=1, description="Machines.")
    gpus_per_node: int = Field(
        8, ge=1, description="Accelerators of each; on a CPU they are pretended, and share its cores."
    )
    tensor_parallel: int = Field(1, ge=1, description="Accelerators per vLLM replica; divides their total.")
    max_sequences: int = Field(256, ge=1, description="Sequences a vLLM replica generates at a time.")
    memory_fraction: float = Field(
        0.6, gt=0, lt=1, description="Share of an accelerator's memory for vLLM; not used on a CPU."
    )
    tokens_per_device: int = Field(
        16384, ge=1, description="Most tokens in one forward pass, padding included; more are split."
    )
    offload: bool = Field(
        False,
        description="Keep the trainer's parameters and optimiser state in the host's memory while vLLM generates: it "
        "frees 12 bytes a parameter, shared by a node's accelerators, and costs moving them several times a step.",
    )
    rollout_workers: int = Field(8, ge=1, description="Processes that drive and grade rollouts.")
    attention: Literal["sdpa", "flash_attention_2"] = Field(
        "sdpa", description="The trainer's attention; flash_attention_2 also removes padding, and must be installed."
    )
    start_timeout_seconds: float = Field(
        1800, gt=0, description="How long a job may take to load its models and end its first step or validation."
    )
    step_timeout_seconds: float = Field(3600, gt=0, description="How long a job may take for every further step.")

    @field_validator("budget")
    @classmethod
    def _limited(cls, text: str) -> str:
        TrainingBudget.parse(text)
        return text

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        devices = self.nodes * self.gpus_per_node
        for larger, smaller in (
            ("batch_size", "mini_batch_size"),
            ("mini_batch_size * group_size", "nodes * gpus_per_node"),
            ("nodes * gpus_per_node", "tensor_parallel"),
        ):
            total, divisor = (
                {
                    "batch_size": self.batch_size,
                    "mini_batch_size": self.mini_batch_size,
                    "mini_batch_size * group_size": self.mini_batch_size * self.group_size,
                    "nodes * gpus_per_node": devices,
                    "tensor_parallel": self.tensor_parallel,
                }[name]
                for name in (larger, smaller)
            )
            if total % divisor:
                raise ValueError(f"{larger} = {total} is not a multiple of {smaller} = {divisor}")
        if self.device == "cpu" and self.tensor_parallel > 1:
            raise ValueError(f"tensor_parallel = {self.tensor_parallel} on a CPU; expected 1")
        if self.l1 and self.strategy != "vanilla":
            raise ValueError(f"l1 leaves the length to the model: strategy = {self.strategy}, expected vanilla")
        if self.tokens_per_device < self.context_tokens:
            raise ValueError(
                f"tokens_per_device = {self.tokens_per_device} cannot hold one sequence of "
                f"{self.context_tokens} tokens (prompt, budget and a forced think-end)"
            )
        return self

    @property
    def response_tokens(self) -> int:
        """Longest response: t sampled, one forced think-end, s sampled."""
        total = TrainingBudget.parse(self.budget).largest.total
        assert total is not None
        return total + 1

    @property
    def context_tokens(self) -> int:
        """Longest sequence: the prompt, with L1's request in it, and the response."""
        return self.prompt_tokens + (PROMPT_TOKENS if self.l1 else 0) + self.response_tokens

    @property
    def fixed_budget(self) -> Budget | None:
        """The one (t*, s*) that was trained under; None where it was drawn, or a length was asked for instead."""
        return None if self.l1 else TrainingBudget.parse(self.budget).fixed


class Job(TypedDict):
    """Where one training reads and writes. All paths must be visible on every node.

    Attributes:
        model: Hugging Face checkpoint to start from.
        train_files, validation_files: parquet in the schema of `elastic_core.data.problems`.
        out_dir: checkpoints go to `out_dir/global_step_<n>`.
        run_name: the run's name in logs.
        mlflow: log to the MLflow run that MLFLOW_TRACKING_URI and MLFLOW_RUN_ID name in the job's environment.
    """

    model: Path | str
    train_files: Sequence[Path]
    validation_files: Sequence[Path]
    out_dir: Path
    run_name: str
    mlflow: NotRequired[bool]


def compose(parameters: GrpoParameters, **job: Unpack[Job]) -> "DictConfig":
    """verl's configuration, composed on its own ppo_trainer.yaml and validated by verl.

    Raises:
        hydra.errors.ConfigCompositionException: for a key verl does not know.
        ValueError, AssertionError: from verl's validation.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.core.global_hydra import GlobalHydra
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    changed = overrides(parameters, **job)
    GlobalHydra.instance().clear()
    with initialize_config_module("verl.trainer.config", version_base=None):
        # JSON values are valid in hydra's override grammar.
        config = hydra_compose("ppo_trainer", [f"{key}={json.dumps(value)}" for key, value in changed.items()])
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    return config


def overrides(parameters: GrpoParameters, **job: Unpack[Job]) -> dict[str, Any]:
    """What differs from verl's defaults, by hydra's dotted key; those that begin with "+" are not in its YAML."""
    return {
        **_data(parameters, job["train_files"], job["validation_files"]),
        **_algorithm(parameters),
        **_actor(parameters, job["model"]),
        **_rollout(parameters, job["model"]),
        **_trainer(parameters, job["out_dir"], job["run_name"], job.get("mlflow", False)),
    }


def _data(p: GrpoParameters, train_files: Sequence[Path], validation_files: Sequence[Path]) -> dict[str, Any]:
    return {
        "data.train_files": [str(file) for file in train_files],
        "data.val_files": [str(file) for file in validation_files],
        "data.train_batch_size": p.batch_size,
        "data.max_prompt_length": p.prompt_tokens,
        "data.max_response_length": p.response_tokens,
        "data.filter_overlong_prompts": True,
        "data.seed": p.seed,
        "data.val_max_samples": p.validation_problems or -1,
        # Rows are small. Worker processes cost more than they bring, and die noisily at shutdown.
        "data.dataloader_num_workers": 0,
    }


def _algorithm(p: GrpoParameters) -> dict[str, Any]:
    return {
        "algorithm.adv_estimator": "elastic_grpo",  # advantage.py registers it.
        "critic.enable": False,
        "algorithm.use_kl_in_reward": False,
        "algorithm.rollout_correction.bypass_mode": p.reuse_rollout_logprobs,
        # Read by agent_loop.py and trainer.py; verl's own sections refuse keys they do not know.
        "+elastic.strategy": p.strategy,
        "+elastic.budget": p.budget,
        "+elastic.seed": p.seed,
        "+elastic.keep_checkpoints": p.keep_checkpoints,
        **({f"+elastic.l1.{key}": value for key, value in p.l1} if p.l1 else {"+elastic.l1": None}),
    }


def _actor(p: GrpoParameters, model: Path | str) -> dict[str, Any]:
    cpu = p.device == "cpu"
    dtype = "fp32" if cpu else "bf16"
    actor = "actor_rollout_ref.actor"
    engines = ["actor", "ref"]
    return {
        "actor_rollout_ref.model.path": str(model),
        "actor_rollout_ref.model.use_remove_padding": p.attention == "flash_attention_2",
        "+actor_rollout_ref.model.override_config.attn_implementation": p.attention,
        "actor_rollout_ref.model.enable_gradient_checkpointing": not cpu,
        # Log-probabilities in chunks of tokens. Without flash-attn's kernels verl otherwise loops over single tokens.
        "actor_rollout_ref.model.use_fused_kernels": True,
        "actor_rollout_ref.model.fused_kernel_options.impl_backend": "torch",
        f"{actor}.strategy": "fsdp2",
        f"{actor}.ppo_mini_batch_size": p.mini_batch_size,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": p.tokens_per_device,
        # Over the mini-batch's sampled tokens: forced ones are masked out of sum and count.
        f"{actor}.loss_agg_mode": "token-mean",
        f"{actor}.clip_ratio": p.clip_low,
        f"{actor}.clip_ratio_low": p.clip_low,
        f"{actor}.clip_ratio_high": p.clip_high,
        f"{actor}.entropy_coeff": p.entropy_coefficient,
        f"{actor}.use_kl_loss": p.kl_coefficient > 0,
        f"{actor}.kl_loss_coef": p.kl_coefficient,
        f"{actor}.kl_loss_type": "low_var_kl",
        f"{actor}.optim.lr": p.learning_rate,
        f"{actor}.optim.lr_warmup_steps": p.warmup_steps,
        f"{actor}.optim.weight_decay": p.weight_decay,
        f"{actor}.optim.clip_grad": p.clip_grad,
        # hf_model makes exporting a copy, whatever the number of processes that trained.
        f"{actor}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{actor}.checkpoint.load_contents": ["model", "optimizer", "extra"],
        # Between rollouts all of it is on the accelerator. The reference lives in the host's memory anyway.
        f"{actor}.fsdp_config.param_offload": p.offload,
        f"{actor}.fsdp_config.optimizer_offload": p.offload,
        # Above one node every node holds a whole copy: parameters are gathered within it, gradients alone travel.
        **{
            f"actor_rollout_ref.{name}.fsdp_config.fsdp_size": p.gpus_per_node if p.nodes > 1 else -1
            for name in engines
        },
        **{f"actor_rollout_ref.{name}.fsdp_config.use_torch_compile": not cpu for name in engines},
        # Left out, FSDP computes in bf16; its `dtype` is read by other engines only.
        **{f"+actor_rollout_ref.{name}.fsdp_config.mixed_precision.param_dtype": dtype for name in engines},
    }


def _rollout(p: GrpoParameters, model: Path | str) -> dict[str, Any]:
    context = p.context_tokens
    rollout = "actor_rollout_ref.rollout"
    overrides: dict[str, Any] = {
        f"{rollout}.name": "vllm",
        f"{rollout}.n": p.group_size,
        f"{rollout}.temperature": p.temperature,
        f"{rollout}.seed": p.seed,
        f"{rollout}.tensor_model_parallel_size": p.tensor_parallel,
        # Of what the agent loop makes of a problem; data.max_prompt_length is that of the problem itself.
        f"{rollout}.prompt_length": context - p.response_tokens,
        f"{rollout}.max_model_len": context,
        f"{rollout}.max_num_batched_tokens": max(context, 8192),
        f"{rollout}.max_num_seqs": p.max_sequences,
        f"{rollout}.gpu_memory_utilization": p.memory_fraction,
        f"{rollout}.agent.num_workers": p.rollout_workers,
        f"{rollout}.agent.default_agent_loop": "elastic",
        f"{rollout}.val_kwargs.n": p.validation_samples,
        f"{rollout}.val_kwargs.temperature": p.validation_temperature,
        f"{rollout}.val_kwargs.top_p": p.validation_top_p,
        f"{rollout}.val_kwargs.do_sample": p.validation_temperature > 0,
        # The agent loop grades; verl's reward workers would idle. Whatever else asks for a score asks our grader.
        "reward.num_workers": 0,
        "reward.custom_reward_function.path": "pkg://elastic_core.training.reward",
        "reward.custom_reward_function.name": "compute_score",
    }
    if p.device == "cpu":
        overrides |= {
            f"{rollout}.dtype": "float32",
            f"{rollout}.enforce_eager": True,
            # Weights and cache share the trainer's memory anyway.
            f"{rollout}.free_cache_engine": False,
            f"+{rollout}.enable_sleep_mode": False,
            # Per-request seeds kill vLLM's CPU engine once a prefill is split.
            f"{rollout}.enable_chunked_prefill": False,
            # The CPU's default of 128 tokens is longer than a short thought, so the prefix cache would never hit.
            f"+{rollout}.engine_kwargs.vllm.block_size": 32,
            f"+{rollout}.engine_kwargs.vllm.distributed_executor_backend": CPU_EXECUTOR,
            f"{rollout}.checkpoint_engine.update_weights_bucket_megabytes": _bucket_megabytes(Path(model)),
        }
    return overrides


def _bucket_megabytes(model: Path) -> int:
    """What new weights are sent in on a CPU: a block of shared memory, of which containers have little, but no less
    than the largest tensor takes in float32. (GPUs send larger ones by themselves.)"""
    largest = max((prod(tensor["shape"]) for tensor in tensors(model).values()), default=0)
    return max(32, ceil(4 * largest / 2**20))


def _trainer(p: GrpoParameters, out_dir: Path, run_name: str, mlflow: bool) -> dict[str, Any]:
    return {
        "trainer.device": "cpu" if p.device == "cpu" else "cuda",
        "trainer.nnodes": p.nodes,
        "trainer.n_gpus_per_node": p.gpus_per_node,
        "trainer.total_training_steps": p.steps,
        # The problems may be passed over several times; total_training_steps ends the run.
        "trainer.total_epochs": p.steps,
        "trainer.save_freq": p.save_every,
        "trainer.test_freq": p.validate_every or -1,
        "trainer.val_before_train": p.validate_first and p.validate_every > 0,
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": str(out_dir),
        "trainer.project_name": "elastic-reasoning",
        "trainer.experiment_name": run_name,
        "trainer.logger": ["console", *(["mlflow"] if mlflow else [])],
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": p.nodes,
    }
