"""What a finished training is found again by."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_core.training.grpo.parameters import RESOURCES, GrpoParameters
from flows.runtime.settings import TrainSettings
from flows.runtime.stages import Stages


def inputs(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    monkeypatch.setattr(Stages, "base", Path("base"))
    monkeypatch.setattr(Stages, "fingerprint", lambda self, path: "0123")
    monkeypatch.setattr(Stages, "data_files", lambda self, names: [])
    monkeypatch.setattr(Stages, "stage", lambda self, name, inputs: inputs)
    settings: Any = SimpleNamespace(training=TrainSettings(**changes), data=SimpleNamespace(train=[], validation=[]))
    found: Any = Stages(settings, Path("runs")).trainings
    return found if "seeds" in changes else next(iter(found.values()))


def test_what_a_training_runs_on_is_not_what_it_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = inputs(monkeypatch)
    elsewhere = {
        "nodes": 2, "gpus_per_node": 4, "tensor_parallel": 2, "rollout_workers": 3, "max_sequences": 64,
        "memory_fraction": 0.5, "tokens_per_device": 32768, "offload": True, "attention": "flash_attention_2",
        "keep_checkpoints": 5, "start_timeout_seconds": 7200, "step_timeout_seconds": 7200,
    }  # fmt: skip
    assert elsewhere.keys() == RESOURCES
    assert inputs(monkeypatch, **elsewhere) == plain
    assert inputs(monkeypatch, learning_rate=2e-6) != plain
    published = inputs(monkeypatch, as_published=True)
    for name, value in elsewhere.items():
        by_micro_batch = name in ("nodes", "gpus_per_node", "tokens_per_device")
        assert (inputs(monkeypatch, as_published=True, **{name: value}) != published) == by_micro_batch, name
    others = GrpoParameters.model_fields.keys() - RESOURCES
    # At their defaults: settings that older trainings' keys lack.
    unsaid = {
        "l1", "validation_problems", "mask_truncated_samples", "train_on_forced_end", "closing", "algorithm", "cuts",
        "cut_weights", "answers", "max_generated_tokens", "rollout_seeds", "one_pass", "reward", "credit",
        "own_baseline", "norm_adv_by_std", "filter_groups", "max_num_gen_batches", "loss_agg_mode", "loss_mode",
        "rollout_correction", "rollout_dtype", "precision", "lora_rank", "lora_alpha", "verl", "as_published",
        "reward_settings",
    }  # fmt: skip
    assert others == plain["train"].keys() | unsaid


def test_every_seed_is_a_training_of_its_own_the_same_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    three = inputs(monkeypatch, seeds=[1, 2, 3])
    assert three == {seed: inputs(monkeypatch, seed=seed) for seed in (1, 2, 3)}
    assert inputs(monkeypatch, seeds=[1, 2]) == {seed: three[seed] for seed in (1, 2)}
