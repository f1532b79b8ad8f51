"""The initial model is validated before the first step, and not again where a training is resumed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from elastic_core.training.grpo.config import compose
from elastic_core.training.grpo.parameters import GrpoParameters
from elastic_core.training.grpo.trainer import ElasticTrainer
from tests.integration.test_training_config import MINIATURE


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"validate_every": 10}, True),
        ({"validate_every": 10, "validate_first": False}, False),
        ({"validate_every": 0}, False),
    ],
)
def test_it_is_a_setting(tmp_path: Path, changes: dict[str, Any], first: bool) -> None:
    files = [tmp_path / "problems.parquet"]
    config = compose(
        GrpoParameters(**MINIATURE | changes), model="model", train_files=files, validation_files=files,
        out_dir=tmp_path, run_name="test",
    )  # fmt: skip
    assert config.trainer.val_before_train == first


@pytest.mark.parametrize(("step", "training", "validates"), [(0, False, True), (2, False, False), (2, True, True)])
def test_a_resumed_training_goes_on_with_its_next_step(
    monkeypatch: pytest.MonkeyPatch, step: int, training: bool, validates: bool
) -> None:
    monkeypatch.setattr(PPOTrainerSync, "_validate", lambda self: {"val-core/acc": 0.5})
    trainer = object.__new__(ElasticTrainer)
    trainer.global_steps, trainer._training = step, training
    assert ("val-core/acc" in trainer._validate()) == validates


def test_resuming_changes_no_setting_as_mlflow_refuses_another_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "global_step_2").mkdir()
    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", lambda self: setattr(self, "global_steps", 2))
    trainer = object.__new__(ElasticTrainer)
    trainer.config = OmegaConf.create({"trainer": {"default_local_dir": str(tmp_path), "val_before_train": True}})
    before = trainer.config.copy()
    trainer._load_checkpoint()
    assert trainer.config == before


def test_a_logger_that_is_missing_is_named_before_the_first_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PPOTrainerSync, "on_validate_begin", lambda self: None)
    trainer = object.__new__(ElasticTrainer)
    trainer.config = OmegaConf.create({"trainer": {"logger": ["console", "mlflow"]}})
    trainer.logger = SimpleNamespace(logger={"console": None})
    with pytest.raises(RuntimeError, match="could not attach to mlflow"):
        trainer.on_validate_begin()
