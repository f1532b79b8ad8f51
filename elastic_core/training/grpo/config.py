"""Training's settings as verl's configuration.

Advantages are those of the algorithm (algorithms.py); PPO's clipped ratio is against the policy that sampled; the KL
penalty is a loss term, not part of the reward.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, Unpack

from elastic_core.engines.budgets.parameters import installed_runner
from elastic_core.engines.parameters import CPU_EXECUTOR, NO_FUSED_ALL_REDUCE, PREFILL_TOKENS
from elastic_core.errors import UserError, first_line, nearest
from elastic_core.models.files import is_large, tensors
from elastic_core.strategies.variants import BARE
from elastic_core.system.nested import leaves
from elastic_core.training.algorithms import shares
from elastic_core.training.grpo.parameters import ACTOR, ROLLOUT, GrpoParameters, Verl

if TYPE_CHECKING:
    from omegaconf import DictConfig


class Job(TypedDict):
    """Paths that one training reads and writes, visible on every node."""

    model: Path | str  # Hugging Face checkpoint to start from
    train_files: Sequence[Path]  # parquet in the schema of `elastic_core.data.problems`
    validation_files: Sequence[Path]
    out_dir: Path  # of checkpoints, see checkpoints.py
    run_name: str  # in logs
    mlflow: NotRequired[bool]  # log to the run that MLFLOW_TRACKING_URI and MLFLOW_RUN_ID name in the job


def compose(parameters: GrpoParameters, **job: Unpack[Job]) -> "DictConfig":
    """verl's configuration, composed on its ppo_trainer.yaml; verl raises for a key that it does not know, and
    ValueError or AssertionError for values. UserError for what `train.verl` gives and is refused."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    ours = overrides(parameters, **job)
    config = verl_config("ppo_trainer", ours)
    _pass_on(parameters.verl, config, ours)
    try:
        validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    except Exception as error:
        if parameters.verl:
            raise UserError(f"train.verl: verl refuses it: {first_line(error)}") from error
        raise
    return config


def _pass_on(given: Mapping[str, Any], config: "DictConfig", ours: Mapping[str, Any]) -> None:
    """Set what `train.verl` gives, in tables or by dotted key; "+" before a key adds it, as in hydra. Raises UserError
    for a key that verl does not know, or that is set from other settings."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    taken = {key.removeprefix("+"): value for key, value in ours.items()}
    for path, value in leaves(given):
        written = ".".join(path)
        key, where = written.removeprefix("+"), f"train.verl.{written} = {value!r}"
        for own, set_to in taken.items():
            if f"{own}.".startswith(f"{key}.") or f"{key}.".startswith(f"{own}."):
                raise UserError(f"{where}: other settings of [train] make {own} {set_to!r}; change those")
        default = OmegaConf.select(config, key)
        if not _is_like(value, default):
            raise UserError(f"{where}: expected a value like verl's own, {default!r}")
        try:
            OmegaConf.update(config, key, value, force_add=written != key)
        except OmegaConfBaseException:
            table, _, name = key.rpartition(".")
            found = OmegaConf.select(config, table) if table else config
            hint = nearest(name, map(str, found) if OmegaConf.is_dict(found) else [])
            raise UserError(f"{where}: verl has no such setting{hint}") from None


def _is_like(value: Any, default: Any) -> bool:
    """Whether a scalar can replace verl's default, which has its kind."""
    if not isinstance(default, bool | int | float | str) or value is None:
        return True
    kind = (int, float) if type(default) is float else type(default)
    return isinstance(value, kind) and isinstance(value, bool) == isinstance(default, bool)


def verl_config(name: str, changed: Mapping[str, Any]) -> "DictConfig":
    """verl's configuration `name` with changes by hydra's dotted key; an unknown key raises."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with initialize_config_module("verl.trainer.config", version_base=None):
        # JSON values are valid in hydra's override grammar.
        return hydra_compose(name, [f"{key}={json.dumps(value)}" for key, value in changed.items()])


def overrides(parameters: GrpoParameters, **job: Unpack[Job]) -> dict[str, Any]:
    """What differs from verl's defaults, by hydra's dotted key; those that begin with "+" are not in its YAML."""
    p = parameters
    passed_on = {
        str(key): getattr(p, name)
        for name, field in GrpoParameters.model_fields.items()
        for key in field.metadata
        if isinstance(key, Verl)
    }
    return {
        **passed_on,
        **_algorithm(p),
        **_actor(p, job["model"]),
        **_rollout(p, job["model"]),
        "data.train_files": [str(file) for file in job["train_files"]],
        "data.val_files": [str(file) for file in job["validation_files"]],
        "data.max_response_length": p.response_tokens,
        "data.filter_overlong_prompts": True,
        "data.val_max_samples": p.validation_problems or -1,
        # Rows are small. Worker processes cost more than they bring, and die noisily at shutdown.
        "data.dataloader_num_workers": 0,
        "trainer.device": "cpu" if p.device == "cpu" else "cuda",
        "trainer.total_training_steps": p.updated_steps,
        # The problems may be passed over several times; total_training_steps ends the run.
        "trainer.total_epochs": p.updated_steps,
        "trainer.test_freq": p.validate_every or -1,
        "trainer.val_before_train": p.validate_first and p.validate_every > 0,
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": str(job["out_dir"]),
        "trainer.project_name": "elastic-reasoning",
        "trainer.experiment_name": job["run_name"],
        "trainer.logger": ["console", *(["mlflow"] if job.get("mlflow") else [])],
    }


def _algorithm(p: GrpoParameters) -> dict[str, Any]:
    cuts: dict[str, Any] = {"+elastic.cuts": None}
    if p.cuts_thoughts:
        cuts = {
            **{f"+elastic.cuts.credit.{key}": value for key, value in asdict(p.credited).items()},
            "+elastic.cuts.at": p.cuts_at,
            "+elastic.cuts.weights": shares(p.cut_weighting, p.cuts_at),
            "+elastic.cuts.answers": p.answers or 4,
            "+elastic.cuts.thoughts": p.group_size,
        }
    return {
        # Registered by trainer.py.
        "algorithm.adv_estimator": p.algorithm
        if ":" in p.algorithm
        else f"elastic_{'rows' if p.cuts_thoughts else 'grpo'}_{p.divisor}",
        "critic.enable": False,
        "algorithm.use_kl_in_reward": False,
        **{f"algorithm.rollout_correction.{key}": value for key, value in p.rollout_correction or ()},
        # Problems are fetched one at a time, and replay_buffer.py asks for more.
        **({"algorithm.filter_groups.enable": True} if p.filter_groups else {}),
        "+elastic.filter_groups": p.max_num_gen_batches if p.filter_groups else None,
        # Read by agent_loop.py and trainer.py; verl's sections refuse unknown keys.
        "+elastic.strategy": "separate_native" if p.one_pass else p.strategy,
        **({} if p.closing == BARE else {"+elastic.closing": p.closing}),
        "+elastic.reward": p.reward_name,
        **{f"+elastic.reward_settings.{key}": value for key, value in p.reward_settings.items()},
        "+elastic.train_on_forced_end": p.train_on_forced_end or p.as_published,
        **cuts,
        **({f"+elastic.l1.{key}": value for key, value in p.l1} if p.l1 else {"+elastic.l1": None}),
    }


def _actor(p: GrpoParameters, model: Path | str) -> dict[str, Any]:
    cpu = p.device == "cpu"
    precision = p.precision or ("fp32" if cpu else "bf16")
    overrides: dict[str, Any] = {}
    for engine in (ACTOR, "actor_rollout_ref.ref"):
        # Above one node every node holds a copy: parameters are gathered within it, gradients alone travel.
        overrides[f"{engine}.fsdp_config.fsdp_size"] = p.gpus_per_node if p.nodes > 1 else -1
        overrides[f"{engine}.fsdp_config.use_torch_compile"] = not cpu
        # Left out, FSDP computes in bf16; its `dtype` is read by other engines only.
        overrides[f"+{engine}.fsdp_config.mixed_precision.param_dtype"] = precision
    if p.loss_agg_mode == "seq-mean-token-sum-norm":
        # Else verl divides by the width of the micro-batch, which differs from one to the next.
        overrides[f"{ACTOR}.loss_scale_factor"] = p.response_tokens
    clip = {"": p.clip_low, "_low": p.clip_low, "_high": p.clip_high}
    if p.as_published:  # Its bounds are logged and not used. No ratio is as far from 1: verl takes e^20 at most.
        clip = dict.fromkeys(("", "_low", "_high", "_c"), 1e9)
    overrides |= {f"{ACTOR}.clip_ratio{bound}": ratio for bound, ratio in clip.items()}
    if p.lora_rank:
        overrides |= {
            "actor_rollout_ref.model.lora_rank": p.lora_rank,
            "actor_rollout_ref.model.lora_alpha": p.lora_alpha or 2 * p.lora_rank,
            # vLLM gets merged weights. It needs no LoRA kernels, and its prefix cache and CUDA graphs stay as they are.
            "actor_rollout_ref.model.lora.merge": True,
        }
    return overrides | {
        "actor_rollout_ref.model.path": str(model),
        "actor_rollout_ref.model.use_remove_padding": p.attention == "flash_attention_2",
        "actor_rollout_ref.model.enable_gradient_checkpointing": not cpu,
        # Log-probabilities in chunks of tokens. Without flash-attn's kernels verl otherwise loops over single tokens,
        # which for a large model on a CPU costs less than computing the chunks' logits twice.
        "actor_rollout_ref.model.use_fused_kernels": not (cpu and is_large(Path(model))),
        "actor_rollout_ref.model.fused_kernel_options.impl_backend": "torch",
        f"{ACTOR}.strategy": "fsdp2",
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.use_kl_loss": p.kl_coefficient > 0,
        f"{ACTOR}.kl_loss_type": "low_var_kl",
        # Published, the first step has a rate of 0 without a warm-up too.
        f"{ACTOR}.optim.lr_warmup_steps": max(p.warmup_steps, int(p.as_published)),
        # hf_model makes exporting a copy, whatever the number of processes that trained.
        f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{ACTOR}.checkpoint.load_contents": ["model", "optimizer", "extra"],
    }


def _rollout(p: GrpoParameters, model: Path | str) -> dict[str, Any]:
    context = p.context_tokens
    overrides: dict[str, Any] = {
        f"{ROLLOUT}.name": "vllm",
        # Thoughts that are cut make one rollout of a problem, with many rows.
        f"{ROLLOUT}.n": 1 if p.cuts_thoughts else p.group_size,
        f"{ROLLOUT}.dtype": p.rollout_dtype or ("float32" if p.device == "cpu" else "bfloat16"),
        # With L1's request, that the agent loop adds; data.max_prompt_length is without.
        f"{ROLLOUT}.prompt_length": context - p.response_tokens,
        f"{ROLLOUT}.max_model_len": context,
        f"{ROLLOUT}.max_num_batched_tokens": max(context, PREFILL_TOKENS),
        f"{ROLLOUT}.agent.default_agent_loop": "elastic",
        f"{ROLLOUT}.val_kwargs.do_sample": p.validation_temperature > 0,
        # The agent loop grades, so verl's reward workers would idle. For other scores verl calls our grader too.
        "reward.num_workers": 0,
        "reward.custom_reward_function.path": "pkg://elastic_core.training.grpo.reward",
        "reward.custom_reward_function.name": "compute_score",
    }
    if p.tensor_parallel > 1:  # Text: verl writes it as JSON, which cannot hold omegaconf's tables.
        overrides[f"+{ROLLOUT}.engine_kwargs.vllm.compilation_config"] = json.dumps(NO_FUSED_ALL_REDUCE)
    if p.one_pass:
        processor = installed_runner("cpu" if p.device == "cpu" else "cuda").processor
        overrides[f"+{ROLLOUT}.engine_kwargs.vllm.logits_processors"] = [processor]
    if p.device == "cpu":
        largest = max((prod(tensor["shape"]) for tensor in tensors(Path(model)).values()), default=0)
        overrides |= {
            f"{ROLLOUT}.enforce_eager": True,
            # Weights and cache share the trainer's memory anyway.
            f"{ROLLOUT}.free_cache_engine": False,
            f"+{ROLLOUT}.enable_sleep_mode": False,
            # Per-request seeds kill vLLM's CPU engine once a prefill is split.
            f"{ROLLOUT}.enable_chunked_prefill": False,
            # The CPU's default of 128 tokens is longer than a short thought, so the prefix cache would never hit.
            f"+{ROLLOUT}.engine_kwargs.vllm.block_size": 32,
            f"+{ROLLOUT}.engine_kwargs.vllm.distributed_executor_backend": CPU_EXECUTOR,
            # New weights are sent in a block of shared memory, of which containers have little. It holds the largest
            # tensor in float32.
            f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": max(32, ceil(4 * largest / 2**20)),
        }
    return overrides
