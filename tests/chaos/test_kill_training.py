"""kill -9 of the driver, of workers and of Ray at random moments of embedded training: the same command afterwards
trains to the last step, MLflow has every step once, and the last checkpoint loads."""

import random
import re
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from elastic_core.training.checkpoints import checkpoint_steps
from elastic_core.training.grpo.step_metrics import check_metrics
from tests.elastic_command import ELASTIC, elastic, environment

SEED = 20261127
NUM_KILLS = 5
STEPS, SAVE_EVERY, VALIDATE_EVERY = 60, 3, 9
MOST_STEPS = 8
"""That one life of the training takes before its kill; 0 is a kill while it starts."""

TRAINING = (
    *("run", "train", "--preset", "smoke", "--set", f"train.steps={STEPS}"),
    *("--set", f"train.save_every={SAVE_EVERY}", "--set", f"train.validate_every={VALIDATE_EVERY}"),
)
TRAINER = "ray::ElasticTaskRunner"
VICTIMS = {
    "driver": "",
    "trainer": TRAINER,
    "worker that updates and saves": "ray::WorkerDict",
    "worker that drives rollouts": "ray::RolloutWorker",
    "engine": "VLLM::EngineCore",
    "raylet": "raylet",
    "gcs": "gcs_server",
}
"""How the names of processes begin."""


@pytest.mark.timeout(3600)
def test_a_training_killed_at_random_moments_ends_with_every_step_once(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    process, struck = _start(tmp_path), 0
    for number in range(NUM_KILLS):
        victim, steps, wait = rng.choice(list(VICTIMS)), rng.randint(0, MOST_STEPS), rng.random()
        while not (trainer := _reached(process, tmp_path, steps, struck)):
            assert process.returncode != 0, "it finished before the last kill"
            process = _start(tmp_path)
        struck = trainer
        # A step of this model takes about two seconds: rollouts, update, checkpoint, validation. Starting takes 40.
        time.sleep(wait * (2 if steps else 40))
        print(f"kill {number}: {victim}, checkpoints {_checkpoints(tmp_path)}", flush=True)
        _kill(process, victim)
    if process.poll() is None:
        process.kill()
        process.wait()

    again = elastic(*TRAINING, runs=tmp_path, timeout=1800)
    assert again.returncode == 0, again.stdout[-6000:]
    (directory,) = tmp_path.glob("smoke/train/*")
    assert _checkpoints(tmp_path)[-1] == STEPS
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("smoke").experiment_id], "tags.mlflow.runName = 'train'")
    check_metrics(client, run.info.run_id, STEPS, VALIDATE_EVERY, validate_first=True)
    assert run.info.status == "FINISHED"
    _check_loads(directory / "model")
    assert "train: done before, nothing to do" in elastic(*TRAINING, runs=tmp_path).stdout


def _start(runs: Path) -> "subprocess.Popen[bytes]":
    with (runs / "log").open("ab") as log:
        return subprocess.Popen([ELASTIC, *TRAINING], env=environment(runs), stdout=log, stderr=subprocess.STDOUT)


def _reached(process: "subprocess.Popen[bytes]", runs: Path, steps: int, struck: int, seconds: float = 900) -> int:
    """Wait until a trainer other than the one struck last has finished so many steps.

    Returns:
        Its process, or 0 when the command ended before.
    """
    until = time.monotonic() + seconds
    while process.poll() is None:
        assert time.monotonic() < until, f"no {steps} steps within {seconds:.0f} s"
        trainer = _find(process, TRAINER)
        if trainer and trainer.pid != struck and _steps(runs, trainer.pid) >= steps:
            return trainer.pid
        time.sleep(0.1)
    return 0


def _steps(runs: Path, trainer: int) -> int:
    """Steps that this trainer has finished, by the log of its job."""
    line = re.compile(rf"\(ElasticTaskRunner pid={trainer}\)\S* step:[1-9]\d* - ")
    return sum(len(line.findall(file.read_text())) for file in runs.glob("smoke/train/*/train.log"))


def _find(process: "subprocess.Popen[bytes]", victim: str) -> psutil.Process | None:
    """The command's descendant whose name begins like this; the kernel keeps 15 characters of it."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
        return next((child for child in family if child.name()[:15] == victim[:15]), None)
    except psutil.NoSuchProcess:
        return None


def _kill(process: "subprocess.Popen[bytes]", victim: str) -> None:
    """With the driver everything it started has to go, but for Prefect's server, which the next command ends."""
    if victim != "driver":
        target = _find(process, VICTIMS[victim])
        if target is not None:  # Else it is dead already, or not there yet.
            target.kill()
            target.wait(60)
        return
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    workers = [child for child in family if "prefect" not in " ".join(_command(child))]
    _, alive = psutil.wait_procs(workers, timeout=120)
    assert not alive, f"left behind: {[_command(child) for child in alive]}"


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _checkpoints(runs: Path) -> list[int]:
    return [step for directory in runs.glob("smoke/train/*/checkpoints") for step in checkpoint_steps(directory)]


def _check_loads(model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(model)("1+1=", return_tensors="pt").input_ids
    with torch.no_grad():
        assert AutoModelForCausalLM.from_pretrained(model)(tokens).logits.isfinite().all()
