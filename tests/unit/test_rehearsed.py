"""Which presets are listed as usable, and that each that we ship is."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elastic_core.errors import UserError
from flows import presets
from flows.commands.checks import rehearsal
from flows.runtime.settings import Settings

RECORDED = json.loads(rehearsal.SHIPPED.read_text())


def test_every_preset_that_is_shipped_has_passed_its_rehearsal_as_it_is_now() -> None:
    stale = [name for name in presets.names() if RECORDED.get(name) != rehearsal.key(presets.resolve(name))]
    commands = "; ".join(f"elastic rehearse --preset {name} --ship" for name in stale)
    assert not stale, f"presets or the engine have changed since their rehearsal; run {commands}"


def test_no_rehearsal_is_recorded_of_a_preset_that_is_gone() -> None:
    assert RECORDED.keys() <= set(presets.names())


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "rehearsed.json"
    monkeypatch.setattr(rehearsal, "SHIPPED", file)
    return file


def passing(settings: Settings, monkeypatch: pytest.MonkeyPatch, *outcomes: str | Exception) -> list[str]:
    """Rehearse with steps that each have an outcome; the lines that are shown."""

    def step(outcome: str | Exception) -> str:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    steps = [rehearsal.Step(f"step {i}", "a title", partial(step, outcome)) for i, outcome in enumerate(outcomes)]
    monkeypatch.setattr(rehearsal, "steps_of", lambda settings, directory: steps)
    shown: list[str] = []
    try:
        rehearsal.perform(settings, shown.append)
    except UserError as error:
        shown.append(str(error))
    return shown


def test_a_preset_is_usable_once_it_has_passed_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    settings, rehearsals = presets.resolve("e1-math-1.5b"), tmp_path / rehearsal.REHEARSALS
    shown = passing(settings, monkeypatch, "made", UserError("it broke"), "never run")
    assert shown[-1].startswith("e1-math-1.5b ") and shown[-1].endswith("step 1: it broke")
    assert not any("step 2" in line for line in shown) and not rehearsal.is_usable(settings, rehearsals)
    other = presets.resolve("e1-math-1.5b", {"train.kl_coefficient": 0.5})
    assert "step 0: passed before" in passing(settings, monkeypatch, "made", UserError("again"))
    assert "step 0: passed before" not in passing(other, monkeypatch, "made", UserError("again"))
    passing(settings, monkeypatch, "made", "mended")
    assert rehearsal.is_usable(settings, rehearsals) and not rehearsal.is_usable(other, rehearsals)
    assert "step 0: passed before" not in passing(
        settings, monkeypatch, "made"
    )  # After one that passed it begins anew.


def test_a_preset_is_usable_if_it_has_passed_where_it_was_made(tmp_path: Path) -> None:
    settings = presets.resolve("e1-math-1.5b")
    rehearsal.record_shipped(settings)
    assert rehearsal.is_usable(settings, tmp_path)
    assert not rehearsal.is_usable(presets.resolve("e1-math-7b"), tmp_path)


def test_another_setting_is_another_rehearsal(tmp_path: Path) -> None:
    rehearsal.record_shipped(presets.resolve("e1-math-1.5b"))
    assert not rehearsal.is_usable(presets.resolve("e1-math-1.5b", {"train.kl_coefficient": 0.0}), tmp_path)
    # Where it runs and where its files lie makes no other preset.
    elsewhere = {"data.mirror": str(tmp_path), "mlflow.tracking_uri": "http://localhost:5000"}
    assert rehearsal.is_usable(presets.resolve("e1-math-1.5b", elsewhere), tmp_path)


@pytest.mark.parametrize(
    "change", [{"train.temperature": 0.7}, {"train.nodes": 2}, {"data.max_tests": 7}, {"sweep.samples": 3}]
)
def test_what_is_rehearsed_makes_another_rehearsal(change: dict[str, Any]) -> None:
    assert rehearsal.key(presets.resolve("e1-math-1.5b", change)) != rehearsal.key(presets.resolve("e1-math-1.5b"))


@pytest.mark.parametrize(
    "change",
    [
        {"report.margin": 3.0},
        {"train.gpus_per_node": 2, "train.memory_fraction": 0.3, "train.tokens_per_device": 65536},
        {"engine.data_parallel_size": 2, "engine.gpu_memory_utilization": 0.5, "engine.max_num_seqs": 8},
        {"ray.address": "10.0.0.1:6379", "ray.dashboard": "http://10.0.0.1:8265"},
    ],
)
def test_how_a_report_judges_and_what_it_runs_on_make_no_other_rehearsal(change: dict[str, Any]) -> None:
    assert rehearsal.key(presets.resolve("e1-math-1.5b", change)) == rehearsal.key(presets.resolve("e1-math-1.5b"))
