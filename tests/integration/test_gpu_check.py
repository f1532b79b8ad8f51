"""`make gpu` where there is no GPU: what a CPU can do is done, and the rest says why it was skipped."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flows import presets
from flows.gpu_check.machine import Machine
from flows.gpu_check.runner import Record, run_steps
from flows.gpu_check.steps import NO_GPU, Check
from tests.elastic_command import elastic

ON_A_CPU = Machine([], "abc")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Record]]:
    """Runs steps by name."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    check = Check(ON_A_CPU, tmp_path / "evidence", tmp_path / "work", None, NO_GPU)

    def run(*names: str) -> dict[str, Record]:
        steps = [step for step in check.steps() if step.name in names]
        records = run_steps(steps, check.evidence / "steps", where="a CPU", commit="abc", say=lambda line: None)
        return {record.name: record for record in records}

    return run


def test_inputs_are_a_twin_and_the_preset_that_names_it(run: Callable[..., dict[str, Record]], tmp_path: Path) -> None:
    told = run("inputs")["inputs"]
    assert told.verdict == "passed" and NO_GPU in told.told
    settings = presets.resolve(str(tmp_path / "work" / "gpu-twin.toml"))
    assert settings.base == str(tmp_path / "work" / "twin")
    assert (tmp_path / "work" / "twin" / "model.safetensors").exists()
    assert (tmp_path / "evidence" / "preset.toml").read_text() == (tmp_path / "work" / "gpu-twin.toml").read_text()


def test_nothing_is_measured_without_a_gpu(run: Callable[..., dict[str, Record]]) -> None:
    records = run("inputs", "bench-twin", "bench-model")
    for name in ("bench-twin", "bench-model"):
        assert (records[name].verdict, records[name].told) == ("skipped", NO_GPU)


@pytest.mark.slow
def test_the_cpu_form_passes_and_a_second_call_repeats_nothing(tmp_path: Path) -> None:
    first = elastic("gpu-check", runs=tmp_path)
    assert first.returncode == 0, first.stdout[-3000:]
    assert "of 9 steps 7 passed in their CPU form, 0 failed, 2 skipped" in first.stdout
    evidence = tmp_path / "gpu-evidence"
    assert "This is no evidence of anything on a GPU." in (evidence / "README.md").read_text()
    for name in ("gradients.json", "training/metrics.parquet", "training/train.1.log", "report/report.html"):
        assert (evidence / name).exists()
    second = elastic("gpu-check", runs=tmp_path)
    assert second.stdout.count("passed before") == 7
