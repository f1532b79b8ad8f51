"""Every preset that trains, as verl would be told it."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from elastic_core.engines.parameters import EngineParameters
from elastic_core.training.grpo.config import compose, overrides
from flows import presets

SETTINGS = {name: presets.resolve(name) for name in presets.names()}
EVALUATED = [name for name in SETTINGS if name.startswith("evaluate-") and not name.endswith("-greedy")]
EMBEDDED = SETTINGS["ablation-embedded"]
TRAINED = {name: settings.training for name, settings in SETTINGS.items() if settings.train} | {
    f"ablation-embedded, {name}": EMBEDDED.training.changed(variant.train)
    for name, variant in EMBEDDED.ablation.items()
}
TRAINED |= {
    f"{name}, as published": TRAINED[name].changed({"as_published": True})
    for name in ("e1-math-1.5b", "e1-math-7b", "e1-code-14b")
}
"""Parameters of every preset that trains, and of every kind of variant."""
ARGUMENTS: dict[str, Any] = {
    "model": "model",
    "train_files": [Path("train.parquet")],
    "validation_files": [Path("validation.parquet")],
    "out_dir": Path("out"),
    "run_name": "test",
}


@cache
def composed(name: str) -> Any:
    """verl's own validate_config has passed."""
    return compose(TRAINED[name], **ARGUMENTS)


@cache
def verls_own() -> Any:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with initialize_config_module("verl.trainer.config", version_base=None):
        return hydra_compose("ppo_trainer")


@pytest.mark.parametrize("name", TRAINED)
def test_every_override_names_a_key_of_verl_or_adds_one_that_it_reads(name: str) -> None:
    from omegaconf import OmegaConf
    from verl.workers.config import FSDPEngineConfig, RolloutConfig

    # What its YAML leaves out: fields of its dataclasses, and dictionaries that are handed on as they are.
    added = {
        "actor_rollout_ref.actor.fsdp_config.mixed_precision": FSDPEngineConfig,
        "actor_rollout_ref.ref.fsdp_config.mixed_precision": FSDPEngineConfig,
        "actor_rollout_ref.rollout.enable_sleep_mode": RolloutConfig,
        "actor_rollout_ref.rollout.engine_kwargs.vllm": None,
        "actor_rollout_ref.model.override_config.attn_implementation": None,
    }
    for key in overrides(TRAINED[name], **ARGUMENTS):
        if not key.startswith("+"):
            parent, _, leaf = key.rpartition(".")
            # A key may be there without a value, so its name is looked for.
            assert leaf in OmegaConf.select(verls_own(), parent)._content, key
        elif not key.startswith("+elastic."):
            place = next(place for place in added if key[1:].startswith(place))
            owner, field = added[place], place.rpartition(".")[2]
            assert owner is None or field in owner.__dataclass_fields__, key


def test_e1_math_is_the_papers() -> None:
    config = composed("e1-math-1.5b")
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size, rollout.n) == (128, 64, 8)
    assert (actor.optim.lr, actor.kl_loss_coef, actor.kl_loss_type) == (1e-6, 0.001, "low_var_kl")
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.entropy_coeff, rollout.temperature) == (
        0.2, 0.2, 0.001, 0.6,
    )  # fmt: skip
    assert (config.data.max_prompt_length, config.elastic.budget) == (1024, "1k+1k")
    assert (config.trainer.total_training_steps, config.trainer.save_freq, config.trainer.test_freq) == (200, 10, 10)
    assert (config.trainer.n_gpus_per_node, rollout.val_kwargs.n) == (8, 8)


def test_e1_code_is_the_papers() -> None:
    config = composed("e1-code-14b")
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size, rollout.n) == (128, 64, 8)
    assert (actor.use_kl_loss, actor.entropy_coeff, rollout.temperature) == (False, 0.0, 0.6)
    assert (actor.clip_ratio_low, actor.clip_ratio_high) == (0.2, 0.28)
    assert (config.data.max_prompt_length, rollout.tensor_model_parallel_size) == (2048, 2)
    assert config.trainer.total_training_steps == 30


def test_l1_is_its_papers() -> None:
    exact, largest = composed("l1-exact-1.5b"), composed("l1-max-1.5b")
    assert exact.elastic.l1 == {"form": "exact", "lengths": "100..4000", "penalty": 3e-4}
    assert largest.elastic.l1 == {"form": "max", "lengths": "100..4000", "penalty": 3e-4}
    for config, rate, response, steps in ((exact, 1e-6, 4096, 700), (largest, 4e-6, 4500, 120)):
        rollout = config.actor_rollout_ref.rollout
        assert (config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size) == (128, 64)
        assert (rollout.n, config.actor_rollout_ref.actor.optim.lr) == (16, rate)
        # One token is kept for a forced think-end, which a plain response has not.
        assert (config.data.max_response_length - 1, config.trainer.total_training_steps) == (response, steps)


@pytest.mark.parametrize("name", EVALUATED)
def test_a_released_checkpoint_is_measured_as_the_papers_do(name: str) -> None:
    settings = SETTINGS[name]
    sampling = settings.sweep.model_dump(include={"samples", "temperature", "top_p"})
    samples = {"codeforces": 8, "default": 16} if name == "evaluate-e1-code-14b" else 16
    assert sampling == {"samples": samples, "temperature": 0.6, "top_p": 0.95}
    assert settings.engine == EngineParameters(
        device="cuda", dtype="bfloat16", enforce_eager=False,
        **settings.engine.model_dump(
            include={"tensor_parallel_size", "data_parallel_size", "max_model_len", "max_num_seqs", "model_runner"}
        ),
    )  # fmt: skip
    longest = 24576 if name == "evaluate-length-control-1.5b" else 32768
    assert (settings.sweep.max_response_tokens or settings.engine.max_model_len) == longest
    swapped = any(">" in model for model in settings.sweep.models)
    engines = settings.engine.data_parallel_size * (2 if swapped else 1)
    assert settings.engine.tensor_parallel_size * engines == 8
    released = [model for model in settings.sweep.models if model != "base" and ">" not in model]
    assert all("/" in settings.sweep.checkpoints[model] for model in released)
    assert len(released) == {"evaluate-length-control-1.5b": 3, "evaluate-short-1.5b": 4}.get(name, 1)
