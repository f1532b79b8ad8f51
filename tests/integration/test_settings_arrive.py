"""Each of our settings arrives at a key that verl 0.9.1 reads: settings_arrive.md beside this file has the key, what
decides it, and the line that reads it."""

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
from elastic_core.training.grpo.parameters import DEADLINES, GrpoParameters
from elastic_core.training.sft import compose_config
from elastic_core.training.sft_parameters import SftParameters, WarmStart
from flows import presets
from tests.documents import table
from tests.integration.test_preset_verl import TRAINED, composed

ROOTS = {"verl": Path(verl.__file__).parent, "elastic_core": Path(elastic_core.__file__).parent}
WORKERS, ACTOR = "workers/engine_workers.py", "actor_rollout_ref.actor"
OURS = {"model", "train_file", "work_dir", "output_dir", "keep_order", "seed", "log_every"}
"""Paths, and what our subclasses of the trainer and its tracking read from the warm start itself."""
NO_BOUND = 1e9
"""As published there is none."""


class Arrival(NamedTuple):
    """A key of the composed configuration, what decides it, the file that reads it, and what stands there."""

    key: str
    settings: list[str]
    file: str
    line: str


def arrivals(text: str) -> list[Arrival]:
    return [Arrival(key, settings, file, line) for key, settings, (file,), (line,) in table(text)]


GRPO, SFT = map(arrivals, Path(__file__).with_name("settings_arrive.md").read_text().split("## Fine-tuning"))


def if_cut(what: Callable[[GrpoParameters], Any]) -> Callable[[GrpoParameters], Any]:
    """Where thoughts are cut; None elsewhere."""
    return lambda p: None if p.algorithm == "grpo" else what(p)


def corrected(p: GrpoParameters, name: str, default: Any) -> Any:
    return getattr(p.rollout_correction, name) if p.rollout_correction else default


OF_GRPO: dict[str, Callable[[GrpoParameters], Any]] = {
    "algorithm.adv_estimator": lambda p: f"elastic_{'grpo' if p.algorithm == 'grpo' else 'rows'}_{p.divisor}",
    "elastic.cuts.credit": if_cut(lambda p: asdict(p.credited)),
    "elastic.cuts.at": if_cut(lambda p: list(p.cuts_at)),
    "elastic.cuts.weights": if_cut(lambda p: list(shares(p.cut_weighting, p.cuts_at))),
    "elastic.cuts.answers": if_cut(lambda p: p.answers or 4),
    "elastic.cuts.thoughts": if_cut(lambda p: p.group_size),
    "elastic.filter_groups": lambda p: p.max_num_gen_batches if p.filter_groups else None,
    "elastic.l1": lambda p: p.l1 and p.l1.model_dump(),
    "elastic.reward": lambda p: p.reward_name,
    "elastic.strategy": lambda p: "separate_native" if p.one_pass else p.strategy,
    "elastic.train_on_forced_end": lambda p: p.train_on_forced_end or p.as_published,
    "actor_rollout_ref.model.lora.merge": lambda p: p.lora_rank > 0,
    "actor_rollout_ref.model.lora_alpha": lambda p: (p.lora_alpha or 2 * p.lora_rank) if p.lora_rank else 16,
    "actor_rollout_ref.model.use_remove_padding": lambda p: p.attention == "flash_attention_2",
    f"{ACTOR}.clip_ratio_c": lambda p: NO_BOUND if p.as_published else 3.0,
    f"{ACTOR}.clip_ratio_high": lambda p: NO_BOUND if p.as_published else p.clip_high,
    f"{ACTOR}.clip_ratio_low": lambda p: NO_BOUND if p.as_published else p.clip_low,
    f"{ACTOR}.fsdp_config.fsdp_size": lambda p: p.gpus_per_node if p.nodes > 1 else -1,
    "actor_rollout_ref.ref.fsdp_config.fsdp_size": lambda p: p.gpus_per_node if p.nodes > 1 else -1,
    f"{ACTOR}.fsdp_config.mixed_precision.param_dtype": lambda p: (
        p.precision or ("fp32" if p.device == "cpu" else "bf16")
    ),
    f"{ACTOR}.loss_scale_factor": lambda p: p.response_tokens if p.loss_agg_mode == "seq-mean-token-sum-norm" else None,
    f"{ACTOR}.optim.lr_warmup_steps": lambda p: max(1, p.warmup_steps) if p.as_published else p.warmup_steps,
    f"{ACTOR}.use_kl_loss": lambda p: p.kl_coefficient > 0,
    "actor_rollout_ref.rollout.dtype": lambda p: p.rollout_dtype or ("float32" if p.device == "cpu" else "bfloat16"),
    "actor_rollout_ref.rollout.engine_kwargs.vllm.logits_processors": lambda p: (
        [f"elastic_core.engines.budgets.{'v1' if p.device == 'cpu' else 'v2'}:SeparateBudgets"] if p.one_pass else None
    ),
    "actor_rollout_ref.rollout.max_model_len": lambda p: p.context_tokens,
    "actor_rollout_ref.rollout.n": lambda p: p.group_size if p.algorithm == "grpo" else 1,
    "actor_rollout_ref.rollout.prompt_length": lambda p: p.context_tokens - p.response_tokens,
    "actor_rollout_ref.rollout.response_length": lambda p: p.response_tokens,
    "data.val_max_samples": lambda p: p.validation_problems or -1,
    "trainer.device": lambda p: {"gpu": "cuda", "cpu": "cpu"}[p.device],
    "trainer.test_freq": lambda p: p.validate_every or -1,
    "trainer.total_training_steps": lambda p: p.updated_steps,
    "trainer.val_before_train": lambda p: p.validate_first and p.validate_every > 0,
} | {
    f"algorithm.rollout_correction.{name}": partial(corrected, name=name, default=default)
    for name, default in {
        "rollout_is": None,
        "rollout_is_threshold": 2.0,
        "rollout_is_batch_normalize": False,
        "rollout_rs": None,
        "rollout_rs_threshold": None,
    }.items()
}
OF_SFT: dict[str, Callable[[WarmStart], Any]] = {
    "data.micro_batch_size_per_gpu": lambda c: c.batch_size if c.remove_padding else 1,
    "data.use_dynamic_bsz": lambda c: c.remove_padding or c.device == "cpu",
    "engine.reshard_after_forward": lambda c: c.device == "gpu",
    "model.enable_gradient_checkpointing": lambda c: c.device == "gpu",
    "model.use_fused_kernels": lambda c: c.device == "gpu",
    "optim.betas": lambda c: list(c.betas),
    "trainer.logger": lambda c: list(c.loggers),
}
"""Values that are not the setting's own."""


def astray(
    arrivals: list[Arrival], computed: dict[str, Callable[[Any], Any]], config: Any, parameters: Any
) -> list[str]:
    """Keys that have another value than the parameters ask for."""
    assert computed.keys() <= {each.key for each in arrivals}
    expected = {
        key: computed[key](parameters) if key in computed else getattr(parameters, settings[0])
        for key, settings, *_ in arrivals
    }
    return [key for key, value in expected.items() if OmegaConf.select(config, key) != value]


def test_no_setting_is_left_out() -> None:
    arriving = [{setting for each in arrivals for setting in each.settings} for arrivals in (GRPO, SFT)]
    # verl's own are in test_training_config, a reward's in test_methods; a closing is there where it is not bare.
    passed_on = {"verl", "reward_settings", "closing"}
    assert arriving == [set(GrpoParameters.model_fields) - DEADLINES - passed_on, set(WarmStart.model_fields) - OURS]


@pytest.mark.parametrize("name", TRAINED)
def test_a_preset_s_settings_arrive(name: str) -> None:
    assert astray(GRPO, OF_GRPO, composed(name), TRAINED[name]) == []


FINE_TUNED = [name for name in presets.names() if presets.resolve(name).warm_start.sft]


@pytest.mark.parametrize("name", FINE_TUNED)
def test_a_fine_tuning_s_settings_arrive(name: str) -> None:
    sft = presets.resolve(name).warm_start.sft
    assert isinstance(sft, SftParameters)
    job = sft.warm_start(Path("model"), Path("rows.parquet"), sft.batch_size, Path("work"), Path("out"))
    assert astray(SFT, OF_SFT, compose_config(job), job) == []


@pytest.mark.parametrize("arrival", [*GRPO, *SFT], ids=lambda each: each.key)
def test_the_key_is_read(arrival: Arrival) -> None:
    package, _, file = arrival.file.partition("/")
    assert arrival.line in (ROOTS[package] / file).read_text()


def test_what_the_engine_gets_is_the_actor_s_section_of_that_name() -> None:
    """The keys above end in optim and fsdp_config; these lines hand them on."""
    workers = (ROOTS["verl"] / WORKERS).read_text()
    actor = (ROOTS["verl"] / "workers/config/actor.py").read_text()
    assert "optimizer_config=actor_config.optim" in workers and "engine_config=actor_config.engine" in workers
    assert "self.engine = self.fsdp_config" in actor


def test_the_schedule_takes_one_step_for_all_updates_of_a_training_step() -> None:
    """So warm-up counts training steps. The schedule begins at a rate of 0."""
    from torch import nn, optim
    from verl.utils.torch_functional import get_constant_schedule_with_warmup

    workers = (ROOTS["verl"] / WORKERS).read_text()
    assert "update_lr_scheduler=batch_idx == total_num_iterations - 1" in workers
    optimizer = optim.AdamW([nn.Parameter()], lr=1.0)
    schedule = get_constant_schedule_with_warmup(optimizer, num_warmup_steps=2)
    rates = []
    for _ in range(4):
        rates += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    assert rates == [0, 0.5, 1, 1]
