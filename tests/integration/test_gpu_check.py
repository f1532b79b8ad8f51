"""`make gpu` where there is no GPU: what a CPU can do is done, and the rest says why it was skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows import presets
from tests.gpu.check import NO_GPU, Check
from tests.gpu.evidence import Machine
from tests.gpu.steps import run_steps


def test_the_twin_is_prepared_and_what_needs_a_gpu_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    check = Check(Machine([], "abc"), tmp_path / "evidence", tmp_path / "work", None, NO_GPU)
    steps = [step for step in check.steps() if step.name in ("inputs", "engine-mp")]
    inputs, engine = run_steps(steps, tmp_path / "steps", where="a CPU", commit="abc", say=lambda line: None)

    assert inputs.verdict == "passed" and NO_GPU in inputs.told
    settings = presets.resolve(str(tmp_path / "work" / "gpu-twin.toml"))
    assert settings.base == str(tmp_path / "work" / "twin")
    assert (tmp_path / "work" / "twin" / "model.safetensors").exists()
    assert (tmp_path / "evidence" / "preset.toml").read_text() == (tmp_path / "work" / "gpu-twin.toml").read_text()
    assert (engine.verdict, engine.told) == ("skipped", NO_GPU)


@pytest.mark.slow
def test_the_cpu_form_passes_and_a_second_call_repeats_nothing(tmp_path: Path) -> None:
    def check() -> str:
        """Its output."""
        command = [sys.executable, "-m", "tests.gpu", "--minutes", "inf"]
        return subprocess.check_output(command, env={**os.environ, "ELASTIC_RUNS": str(tmp_path)}, text=True)

    first = check()
    assert "of 9 steps 8 passed in their CPU form, 0 failed, 1 skipped" in first
    evidence = tmp_path / "gpu-evidence"
    assert "not evidence" in (evidence / "README.md").read_text()
    for name in (
        "gradients.json",
        "training/metrics.parquet",
        "training/train.1.log",
        "report/report.html",
        "engine.json",
        "serve.json",
        "verl.json",
    ):
        assert (evidence / name).exists()
    assert check().count("passed before") == 8
