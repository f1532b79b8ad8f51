"""What a finished training is found again by."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_core.training.config import GrpoParameters
from flows import stages


def inputs(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    monkeypatch.setattr(stages, "base_model", lambda run: Path("base"))
    monkeypatch.setattr(stages, "fingerprint", lambda run, path: "0123")
    monkeypatch.setattr(stages, "data_files", lambda run, names: [])
    settings = SimpleNamespace(training=GrpoParameters(**changes), data=SimpleNamespace(train=[], validation=[]))
    return stages.train_stage(SimpleNamespace(settings=settings, stage=lambda name, inputs: inputs))  # type: ignore[arg-type]


def test_a_training_that_was_overdue_goes_on_under_a_longer_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = inputs(monkeypatch)
    assert inputs(monkeypatch, start_timeout_seconds=7200, step_timeout_seconds=7200) == plain
    assert inputs(monkeypatch, learning_rate=2e-6) != plain
