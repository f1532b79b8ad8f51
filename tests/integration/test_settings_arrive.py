"""Each of our settings arrives at a key that verl 0.9.1 reads: the key, its value, and the line that reads it."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import verl
from omegaconf import OmegaConf

import elastic_core
from elastic_core.training.algorithms import shares
from elastic_core.training.grpo.parameters import DEADLINES, GrpoParameters, Verl
from elastic_core.training.sft import compose_config
from elastic_core.training.sft_parameters import SftParameters, WarmStart
from flows import presets
from tests.integration.test_preset_verl import TRAINED, composed

_ROOTS = {"verl": Path(verl.__file__).parent, "elastic_core": Path(elastic_core.__file__).parent}


class Arrival(NamedTuple):
    """Where a setting arrives.

    Attributes:
        key: of the composed configuration.
        expected: its value, from our parameters.
        file: that reads it, from the package on.
        line: what stands there.
    """

    key: str
    expected: Callable[[Any], Any]
    file: str
    line: str


def same(name: str) -> Callable[[Any], Any]:
    return lambda parameters: getattr(parameters, name)


TRAINER = "verl/trainer/ppo/v1/trainer_base.py"
ENGINE = "verl/workers/engine/fsdp/transformer_impl.py"
WORKERS = "verl/workers/engine_workers.py"
SERVER = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
LOSS = "verl/workers/utils/losses.py"
NO_BOUND = 1e9
CORE = "verl/trainer/ppo/core_algos.py"
OPTIMIZER = "verl/workers/config/optimizer.py"
LOOP = "elastic_core/training/grpo/agent_loop.py"
ACTOR, REF, ROLLOUT = (f"actor_rollout_ref.{name}" for name in ("actor", "ref", "rollout"))


def _sharded_within(p: GrpoParameters) -> int:
    return p.gpus_per_node if p.nodes > 1 else -1


def if_cut(what: Callable[[GrpoParameters], Any]) -> Callable[[Any], Any]:
    """Where thoughts are cut; None elsewhere."""
    return lambda parameters: None if parameters.algorithm == "grpo" else what(parameters)


def bound(name: str) -> Callable[[Any], Any]:
    """As published there is none."""
    return lambda parameters: NO_BOUND if parameters.as_published else getattr(parameters, name)


def corrected(parameters: GrpoParameters, name: str, default: Any) -> Any:
    return getattr(parameters.rollout_correction, name) if parameters.rollout_correction else default


STRATEGY = Arrival(
    "elastic.strategy",
    lambda parameters: "separate_native" if parameters.one_pass else parameters.strategy,
    LOOP,
    "settings.strategy",
)
CREDIT = Arrival(
    "elastic.cuts.credit", if_cut(lambda p: asdict(p.credited)), LOOP, "Credit(**self.config.elastic.cuts.credit)"
)
ESTIMATOR = Arrival(
    "algorithm.adv_estimator",
    lambda p: f"elastic_{'grpo' if p.algorithm == 'grpo' else 'rows'}_{p.divisor}",
    TRAINER,
    "adv_estimator=self.config.algorithm.adv_estimator",
)
FILTER = Arrival(
    "elastic.filter_groups",
    lambda p: p.max_num_gen_batches if p.filter_groups else None,
    "elastic_core/training/grpo/trainer.py",
    "max_batches=self.config.elastic.filter_groups",
)
FORCED_END = Arrival(
    "elastic.train_on_forced_end",
    lambda p: p.train_on_forced_end or p.as_published,
    LOOP,
    "settings.train_on_forced_end",
)
STEPS = Arrival(
    "trainer.total_training_steps", same("updated_steps"), TRAINER, "self.config.trainer.total_training_steps"
)
READ: tuple[tuple[str, str, str], ...] = (
    (f"{ACTOR}.loss_agg_mode", LOSS, "loss_agg_mode = config.loss_agg_mode"),
    (f"{ACTOR}.policy_loss.loss_mode", LOSS, 'config.policy_loss.get("loss_mode"'),
    (
        "elastic.max_generated_tokens",
        "elastic_core/training/grpo/trainer.py",
        "self.config.elastic.max_generated_tokens",
    ),
    ("elastic.budget", LOOP, "settings.budget"),
    ("elastic.mask_truncated_samples", LOOP, "settings.mask_truncated_samples"),
    ("elastic.as_published", LOOP, "settings.as_published"),
    (
        "elastic.as_published",
        "elastic_core/training/grpo/trainer.py",
        "batch.extra_info[MEAN_OF_EACH] = bool(self.config.elastic.as_published)",
    ),
    ("data.train_batch_size", TRAINER, "self.config.data.train_batch_size"),
    (
        f"{ACTOR}.ppo_mini_batch_size",
        TRAINER,
        "ppo_mini_batch_size = self.config.actor_rollout_ref.actor.ppo_mini_batch_size",
    ),
    (f"{ACTOR}.optim.lr", OPTIMIZER, '"lr": config.lr'),
    (f"{ACTOR}.optim.weight_decay", OPTIMIZER, '"weight_decay": config.weight_decay'),
    (f"{ACTOR}.optim.clip_grad", ENGINE, "max_norm=self.optimizer_config.clip_grad"),
    (f"{ACTOR}.kl_loss_coef", LOSS, "kl_loss * config.kl_loss_coef"),
    (f"{ACTOR}.entropy_coeff", LOSS, "entropy_coeff = config.entropy_coeff"),
    (f"{ROLLOUT}.temperature", "verl/trainer/ppo/v1/agent_loop_tq.py", "temperature=config.temperature"),
    (f"{ROLLOUT}.temperature", TRAINER, '"temperature": self.config.actor_rollout_ref.rollout.temperature'),
    ("algorithm.rollout_correction.bypass_mode", TRAINER, 'rollout_corr_config.get("bypass_mode", False)'),
    ("data.max_prompt_length", "verl/utils/dataset/rl_dataset.py", 'config.get("max_prompt_length"'),
    ("trainer.save_freq", TRAINER, "self.config.trainer.save_freq"),
    ("elastic.keep_checkpoints", "elastic_core/training/grpo/trainer.py", "self.config.elastic.keep_checkpoints"),
    (f"{ROLLOUT}.val_kwargs.n", TRAINER, "self.config.actor_rollout_ref.rollout.val_kwargs.n"),
    (f"{ROLLOUT}.val_kwargs.temperature", "verl/trainer/ppo/v1/agent_loop_tq.py", "config.val_kwargs.temperature"),
    (f"{ROLLOUT}.val_kwargs.top_p", "verl/trainer/ppo/v1/agent_loop_tq.py", "config.val_kwargs.top_p"),
    ("data.seed", "verl/trainer/ppo/utils.py", 'data_config.get("seed")'),
    ("elastic.seed", LOOP, "settings.seed"),
    (f"{ROLLOUT}.seed", SERVER, "self.replica_rank + self.config.seed"),
    ("elastic.rollout_seeds", LOOP, 'settings.rollout_seeds == "request"'),
    ("trainer.nnodes", TRAINER, "config.trainer.nnodes"),
    ("trainer.n_gpus_per_node", TRAINER, "[config.trainer.n_gpus_per_node]"),
    (f"{ROLLOUT}.tensor_model_parallel_size", SERVER, "self.config.tensor_model_parallel_size"),
    (f"{ROLLOUT}.max_num_seqs", SERVER, '"max_num_seqs": self.config.max_num_seqs'),
    (f"{ROLLOUT}.gpu_memory_utilization", SERVER, '"gpu_memory_utilization": self.config.gpu_memory_utilization'),
    (
        f"{ACTOR}.ppo_max_token_len_per_gpu",
        WORKERS,
        "max_token_len_per_gpu = self.config.actor.ppo_max_token_len_per_gpu",
    ),
    (f"{ACTOR}.fsdp_config.param_offload", ENGINE, "self.engine_config.param_offload"),
    (f"{ACTOR}.fsdp_config.optimizer_offload", ENGINE, "self.engine_config.optimizer_offload"),
    (
        f"{ROLLOUT}.agent.num_workers",
        "verl/experimental/agent_loop/agent_loop.py",
        "self.rollout_config.agent.num_workers",
    ),
    (
        "actor_rollout_ref.model.override_config.attn_implementation",
        "verl/workers/config/model.py",
        'self.override_config.get("attn_implementation"',
    ),
    (
        "transfer_queue.backend.SimpleStorage.num_data_storage_units",
        "elastic_core/training/requirements.py",
        "config.transfer_queue.backend.SimpleStorage.num_data_storage_units",
    ),
)
"""Keys that settings are passed on to, as their fields declare, with the file and the line that reads each."""
OTHERS: dict[str, list[Arrival]] = {
    "algorithm": [CREDIT, ESTIMATOR],
    "credit": [CREDIT],
    "own_baseline": [CREDIT],
    "norm_adv_by_std": [CREDIT, ESTIMATOR],
    "filter_groups": [
        FILTER,
        Arrival("algorithm.filter_groups.enable", same("filter_groups"), TRAINER, 'filter_groups.get("enable", False)'),
    ],
    "max_num_gen_batches": [FILTER],
    "rollout_correction": [
        Arrival(
            f"algorithm.rollout_correction.{name}",
            partial(corrected, name=name, default=default),
            "verl/trainer/ppo/rollout_corr_helper.py",
            f'rollout_corr_config.get("{name}"',
        )
        for name, default in (
            ("rollout_is", None),
            ("rollout_is_threshold", 2.0),
            ("rollout_is_batch_normalize", False),
            ("rollout_rs", None),
            ("rollout_rs_threshold", None),
        )
    ],
    "loss_agg_mode": [
        Arrival(
            f"{ACTOR}.loss_scale_factor",
            lambda p: p.response_tokens if p.loss_agg_mode == "seq-mean-token-sum-norm" else None,
            LOSS,
            "config.loss_scale_factor",
        )
    ],
    "rollout_dtype": [
        Arrival(
            f"{ROLLOUT}.dtype",
            lambda p: p.rollout_dtype or ("float32" if p.device == "cpu" else "bfloat16"),
            SERVER,
            '"dtype": self.config.dtype',
        )
    ],
    "precision": [
        Arrival(
            f"{ACTOR}.fsdp_config.mixed_precision.param_dtype",
            lambda p: p.precision or ("fp32" if p.device == "cpu" else "bf16"),
            ENGINE,
            'mixed_precision_config.get("param_dtype"',
        )
    ],
    "lora_rank": [
        Arrival("actor_rollout_ref.model.lora_rank", same("lora_rank"), ENGINE, '"r": self.model_config.lora_rank'),
        Arrival("actor_rollout_ref.model.lora.merge", lambda p: p.lora_rank > 0, ENGINE, 'lora.get("merge", False)'),
    ],
    "lora_alpha": [
        Arrival(
            "actor_rollout_ref.model.lora_alpha",
            lambda p: (p.lora_alpha or 2 * p.lora_rank) if p.lora_rank else 16,
            ENGINE,
            '"lora_alpha": self.model_config.lora_alpha',
        )
    ],
    "cuts": [Arrival("elastic.cuts.at", if_cut(lambda p: list(p.cuts_at)), LOOP, "settings.cuts.at")],
    "cut_weights": [
        Arrival(
            "elastic.cuts.weights",
            if_cut(lambda p: list(shares(p.cut_weighting, p.cuts_at))),
            LOOP,
            "settings.cuts.weights",
        )
    ],
    "answers": [Arrival("elastic.cuts.answers", if_cut(lambda p: p.answers or 4), LOOP, "settings.cuts.answers")],
    "strategy": [STRATEGY],
    "one_pass": [
        STRATEGY,
        Arrival(
            f"{ROLLOUT}.engine_kwargs.vllm.logits_processors",
            lambda p: ["elastic_core.engines.budgets.v1:SeparateBudgets"] if p.one_pass else None,
            SERVER,
            "**engine_kwargs",
        ),
    ],
    "budget": [
        Arrival(f"{ROLLOUT}.response_length", same("response_tokens"), LOOP, "self.rollout_config.response_length"),
        Arrival(
            f"{ROLLOUT}.max_model_len", same("context_tokens"), SERVER, '"max_model_len": self.config.max_model_len'
        ),
    ],
    "reward": [Arrival("elastic.reward", same("reward_name"), LOOP, "settings.reward")],
    "l1": [Arrival("elastic.l1", lambda p: p.l1 and p.l1.model_dump(), LOOP, "settings.l1")],
    "train_on_forced_end": [FORCED_END],
    "as_published": [
        FORCED_END,
        STEPS,
        Arrival(
            f"{ACTOR}.clip_ratio_c", lambda p: NO_BOUND if p.as_published else 3.0, CORE, "clip_ratio_c = config.get("
        ),
    ],
    "steps": [STEPS],
    "group_size": [
        Arrival(
            f"{ROLLOUT}.n",
            lambda p: p.group_size if p.algorithm == "grpo" else 1,
            "verl/trainer/ppo/v1/agent_loop_tq.py",
            "config.n if",
        ),
        Arrival("elastic.cuts.thoughts", if_cut(lambda p: p.group_size), LOOP, "self.config.elastic.cuts.thoughts"),
    ],
    "warmup_steps": [
        Arrival(
            f"{ACTOR}.optim.lr_warmup_steps",
            lambda p: max(1, p.warmup_steps) if p.as_published else p.warmup_steps,
            ENGINE,
            "optim_config.lr_warmup_steps",
        )
    ],
    "clip_low": [Arrival(f"{ACTOR}.clip_ratio_low", bound("clip_low"), CORE, "config.clip_ratio_low")],
    "clip_high": [Arrival(f"{ACTOR}.clip_ratio_high", bound("clip_high"), CORE, "config.clip_ratio_high")],
    "kl_coefficient": [Arrival(f"{ACTOR}.use_kl_loss", lambda p: p.kl_coefficient > 0, LOSS, "if config.use_kl_loss")],
    "prompt_tokens": [
        Arrival(
            f"{ROLLOUT}.prompt_length",
            lambda p: p.context_tokens - p.response_tokens,
            LOOP,
            "self.rollout_config.prompt_length",
        )
    ],
    "validate_every": [
        Arrival("trainer.test_freq", lambda p: p.validate_every or -1, TRAINER, "self.config.trainer.test_freq")
    ],
    "validate_first": [
        Arrival(
            "trainer.val_before_train",
            lambda p: p.validate_first and p.validate_every > 0,
            TRAINER,
            'self.config.trainer.get("val_before_train"',
        )
    ],
    "validation_problems": [
        Arrival(
            "data.val_max_samples",
            lambda p: p.validation_problems or -1,
            TRAINER,
            'self.config.data.get("val_max_samples"',
        )
    ],
    "device": [
        Arrival(
            "trainer.device",
            lambda p: {"gpu": "cuda", "cpu": "cpu"}[p.device],
            TRAINER,
            'wg_kwargs["device_name"] = self.config.trainer.device',
        )
    ],
    "nodes": [
        Arrival(f"{ACTOR}.fsdp_config.fsdp_size", _sharded_within, ENGINE, "self.engine_config.fsdp_size"),
        Arrival(f"{REF}.fsdp_config.fsdp_size", _sharded_within, ENGINE, "self.engine_config.fsdp_size"),
    ],
    "tokens_per_device": [
        Arrival(
            f"{ROLLOUT}.log_prob_max_token_len_per_gpu",
            same("tokens_per_device"),
            WORKERS,
            "self.config.rollout.log_prob_max_token_len_per_gpu",
        ),
        Arrival(
            f"{REF}.log_prob_max_token_len_per_gpu",
            same("tokens_per_device"),
            WORKERS,
            'self.config.ref.pop("log_prob_max_token_len_per_gpu"',
        ),
    ],
    "attention": [
        Arrival(
            "actor_rollout_ref.model.use_remove_padding",
            lambda p: p.attention == "flash_attention_2",
            WORKERS,
            'self.model_config.get("use_remove_padding"',
        )
    ],
}
PASSED_ON = {
    str(key).removeprefix("+"): name
    for name, field in GrpoParameters.model_fields.items()
    for key in field.metadata
    if isinstance(key, Verl)
}
GRPO = {name: list(OTHERS.get(name, [])) for name in dict.fromkeys([*PASSED_ON.values(), *OTHERS])}
for key, *line in READ:
    GRPO[PASSED_ON[key]].append(Arrival(key, same(PASSED_ON[key]), *line))

SFT_TRAINER = "verl/trainer/sft_trainer.py"
SHARED = Arrival(
    "data.use_dynamic_bsz",
    lambda c: c.remove_padding or c.share_passes,
    SFT_TRAINER,
    "self.config.data.use_dynamic_bsz",
)
SFT: dict[str, list[Arrival]] = {
    "total_steps": [
        Arrival(
            "trainer.total_training_steps", same("total_steps"), SFT_TRAINER, "self.config.trainer.total_training_steps"
        ),
    ],
    "batch_size": [Arrival("data.train_batch_size", same("batch_size"), SFT_TRAINER, "config.data.train_batch_size")],
    "micro_batch_tokens": [
        Arrival(
            "data.max_token_len_per_gpu",
            same("micro_batch_tokens"),
            SFT_TRAINER,
            "self.config.data.max_token_len_per_gpu",
        )
    ],
    "max_length": [Arrival("data.max_length", same("max_length"), "elastic_core/training/sft.py", "config.max_length")],
    "learning_rate": [Arrival("optim.lr", same("learning_rate"), OPTIMIZER, '"lr": config.lr')],
    "schedule": [Arrival("optim.lr_scheduler_type", same("schedule"), ENGINE, "optim_config.lr_scheduler_type")],
    "warmup_steps": [Arrival("optim.lr_warmup_steps", same("warmup_steps"), ENGINE, "optim_config.lr_warmup_steps")],
    "min_learning_rate_ratio": [
        Arrival("optim.min_lr_ratio", same("min_learning_rate_ratio"), ENGINE, "optim_config.min_lr_ratio")
    ],
    "betas": [Arrival("optim.betas", lambda c: list(c.betas), OPTIMIZER, 'optimizer_args["betas"] = config.betas')],
    "weight_decay": [
        Arrival("optim.weight_decay", same("weight_decay"), OPTIMIZER, '"weight_decay": config.weight_decay')
    ],
    "clip_grad": [Arrival("optim.clip_grad", same("clip_grad"), ENGINE, "max_norm=self.optimizer_config.clip_grad")],
    "dtype": [
        Arrival("engine.mixed_precision.param_dtype", same("dtype"), ENGINE, 'mixed_precision_config.get("param_dtype"')
    ],
    "remove_padding": [
        Arrival(
            "model.use_remove_padding", same("remove_padding"), WORKERS, 'self.model_config.get("use_remove_padding"'
        ),
        SHARED,
        Arrival(
            "data.micro_batch_size_per_gpu",
            lambda c: c.batch_size if c.remove_padding else 1,
            SFT_TRAINER,
            "self.config.data.micro_batch_size_per_gpu",
        ),
    ],
    "share_passes": [SHARED],
    "reshard": [
        Arrival("engine.reshard_after_forward", same("reshard"), ENGINE, "self.engine_config.reshard_after_forward")
    ],
    "gradient_checkpointing": [
        Arrival(
            "model.enable_gradient_checkpointing",
            same("gradient_checkpointing"),
            ENGINE,
            "self.model_config.enable_gradient_checkpointing",
        )
    ],
    "fused_loss": [
        Arrival("model.use_fused_kernels", same("fused_loss"), ENGINE, "self.model_config.use_fused_kernels")
    ],
    "offload": [Arrival("engine.offload_policy", same("offload"), ENGINE, "self.engine_config.offload_policy")],
    "attention": [
        Arrival(
            "model.override_config.attn_implementation",
            same("attention"),
            "verl/workers/config/model.py",
            'self.override_config.get("attn_implementation"',
        )
    ],
    "save_every": [Arrival("trainer.save_freq", same("save_every"), SFT_TRAINER, "self.config.trainer.save_freq")],
    "loggers": [Arrival("trainer.logger", lambda c: list(c.loggers), SFT_TRAINER, "self.config.trainer.logger")],
}
OURS = {"model", "train_file", "work_dir", "output_dir", "keep_order", "seed", "log_every"}
"""Paths, and what our subclasses of the trainer and its tracking read from the warm start itself."""


def test_no_setting_is_left_out() -> None:
    assert {key for key, *_ in READ} == PASSED_ON.keys()
    assert set(GRPO) == set(GrpoParameters.model_fields) - DEADLINES - {"verl"}  # verl's own, in test_training_config
    assert set(SFT) == set(WarmStart.model_fields) - OURS


@pytest.mark.parametrize("name", TRAINED)
def test_a_preset_s_settings_arrive(name: str) -> None:
    for setting, arrivals in GRPO.items():
        for key, expected, *_ in arrivals:
            assert OmegaConf.select(composed(name), key) == expected(TRAINED[name]), (setting, key)


FINE_TUNED = [name for name in presets.names() if presets.resolve(name).warm_start.sft]


@pytest.mark.parametrize("name", FINE_TUNED)
def test_a_fine_tuning_s_settings_arrive(name: str) -> None:
    sft = presets.resolve(name).warm_start.sft
    assert isinstance(sft, SftParameters)
    job = sft.warm_start(Path("model"), Path("rows.parquet"), sft.batch_size, Path("work"), Path("out"))
    config = compose_config(job)
    for setting, arrivals in SFT.items():
        for key, expected, *_ in arrivals:
            assert OmegaConf.select(config, key) == expected(job), (setting, key)


@pytest.mark.parametrize(
    "arrival",
    [each for table in (GRPO, SFT) for arrivals in table.values() for each in arrivals],
    ids=lambda each: each.key,
)
def test_the_key_is_read(arrival: Arrival) -> None:
    package, _, file = arrival.file.partition("/")
    assert arrival.line in (_ROOTS[package] / file).read_text()


def test_what_the_engine_gets_is_the_actor_s_section_of_that_name() -> None:
    """The keys above end in optim and fsdp_config; these lines hand them on."""
    workers = (_ROOTS["verl"] / WORKERS.removeprefix("verl/")).read_text()
    actor = (_ROOTS["verl"] / "workers/config/actor.py").read_text()
    assert "optimizer_config=actor_config.optim" in workers and "engine_config=actor_config.engine" in workers
    assert "self.engine = self.fsdp_config" in actor


def test_the_schedule_takes_one_step_for_all_updates_of_a_training_step() -> None:
    """So warm-up counts training steps. The schedule begins at a rate of 0."""
    from torch import nn, optim
    from verl.utils.torch_functional import get_constant_schedule_with_warmup

    workers = (_ROOTS["verl"] / WORKERS.removeprefix("verl/")).read_text()
    assert "update_lr_scheduler=batch_idx == total_num_iterations - 1" in workers
    optimizer = optim.AdamW([nn.Parameter()], lr=1.0)
    schedule = get_constant_schedule_with_warmup(optimizer, num_warmup_steps=2)
    rates = []
    for _ in range(4):
        rates += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    assert rates == [0, 0.5, 1, 1]
