"""Supervised fine-tuning in four steps with the real verl, as a user runs it. `make chaos` kills and resumes it."""

from pathlib import Path

import psutil
from mlflow import MlflowClient

from elastic_core.miniature.warm_start import BASE
from elastic_core.system.fingerprint import model_fingerprint
from tests.elastic_command import elastic, elastic_here
from tests.exactness import recorded
from tests.listening import watched

STEPS = ("run", "warm-start", "--preset", "smoke", "--set", "warm_start.steps=4")


def test_a_few_steps_of_fine_tuning_change_the_weights_once(tmp_path: Path) -> None:
    with watched(psutil.Process()) as places:
        done = elastic(*STEPS, runs=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:]
    model = Path(done.stdout.splitlines()[-1])
    assert model_fingerprint(model) != model_fingerprint(BASE)
    assert any("elastic_core.training.sft" in place.command for place in places)
    assert not [place for place in places if not place.is_loopback]
    everything = recorded(MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}"))
    assert [run.info.status for run in everything if run.data.tags["stage"] == "warm-start"] == ["FINISHED"]
    again = elastic_here(*STEPS, runs=tmp_path)
    assert "warm-start: done before, nothing to do" in again.stdout and str(model) in again.stdout
