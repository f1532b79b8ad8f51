"""Following a training job, and its checkpoints on disk, without a cluster."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from elastic_core.training import export
from elastic_core.training.launch import Deadlines, TrainingFailed, follow


class Client:
    """A job server whose job goes through `statuses`, one per look, and stays at the last."""

    def __init__(self, *statuses: str, log: tuple[str, ...] = ()) -> None:
        self.statuses = list(statuses)
        self.log = log
        self.stopped = False

    def get_job_status(self, job: str) -> SimpleNamespace:
        status = "STOPPED" if self.stopped else self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return SimpleNamespace(value=status)

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        for chunk in self.log:
            yield chunk

    def get_job_info(self, job: str) -> SimpleNamespace:
        return SimpleNamespace(message="exit code 1")

    def stop_job(self, job: str) -> None:
        self.stopped = True


def cluster(client: Client) -> Any:
    return SimpleNamespace(client=lambda: client)


LOG = ("starting\n(ElasticTaskRunner pid=7) step:1 - rollout/", "acc:0.5\nstep:2 - rollout/acc:0.75\nbye")


def test_steps_and_lines_are_passed_on_and_the_log_is_kept(tmp_path: Path) -> None:
    steps: list[int] = []
    lines: list[str] = []
    file = tmp_path / "logs" / "train.log"
    follow(
        cluster(Client("PENDING", "RUNNING", "SUCCEEDED", log=LOG)), "job", log_file=file,
        on_line=lines.append, on_step=steps.append,
    )  # fmt: skip
    assert steps == [1, 2]
    assert lines[1].endswith("step:1 - rollout/acc:0.5")
    assert file.read_text() == "".join(LOG)


def test_a_failed_job_raises_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match=r"job train-1 is FAILED: exit code 1\n(.*\n)*bye"):
        follow(cluster(Client("RUNNING", "FAILED", log=LOG)), "train-1", log_file=tmp_path / "log")


def test_a_deadline_says_what_it_waited_for_and_stops_the_job(tmp_path: Path) -> None:
    client = Client("RUNNING", log=("loading\n",))
    with pytest.raises(TimeoutError, match=r"waited 0 s for the first step; stopped.*\n(.*\n)*loading"):
        follow(cluster(client), "job", log_file=tmp_path / "log", deadlines=Deadlines(start=0, step=0))
    assert client.stopped


def test_an_error_of_a_callback_is_raised_while_the_job_runs(tmp_path: Path) -> None:
    def refuse(step: int) -> None:
        raise KeyError(step)

    with pytest.raises(KeyError):
        follow(cluster(Client("RUNNING", log=LOG)), "job", log_file=tmp_path / "log", on_step=refuse)


def write_checkpoint(out_dir: Path, step: int, *, tracked: bool = True) -> Path:
    weights = out_dir / f"global_step_{step}" / "actor" / "huggingface"
    weights.mkdir(parents=True)
    save_file({"weight": np.zeros(2, np.float32)}, weights / "model.safetensors")
    (weights / "model.safetensors").chmod(0o600)
    (weights / "config.json").write_text('{"dtype": "bfloat16", "vocab_size": 2}')
    if tracked:
        (out_dir / "latest_checkpointed_iteration.txt").write_text(str(step))
    return weights.parent.parent


def test_only_checkpoints_that_verl_finished_count(tmp_path: Path) -> None:
    assert export.latest_checkpoint(tmp_path) is None and not export.is_finished(tmp_path, 1)
    first = write_checkpoint(tmp_path, 10)
    write_checkpoint(tmp_path, 20, tracked=False)
    assert export.latest_checkpoint(tmp_path) == first
    assert export.checkpoint_steps(tmp_path) == [10, 20]
    assert export.is_finished(tmp_path, 10) and not export.is_finished(tmp_path, 20)


def test_pruning_keeps_the_newest(tmp_path: Path) -> None:
    for step in (2, 10, 9):
        write_checkpoint(tmp_path, step)
    export.prune_checkpoints(tmp_path, keep=2)
    assert export.checkpoint_steps(tmp_path) == [9, 10]


def test_an_export_is_complete_readable_and_replaces_the_old_one(tmp_path: Path) -> None:
    output = tmp_path / "models" / "trained"
    for step in (1, 2):
        assert export.export(write_checkpoint(tmp_path, step), output) == output
    assert [path.name for path in output.parent.iterdir()] == ["trained"]
    assert (output / "model.safetensors").stat().st_mode & 0o777 == 0o644
    # What verl writes there is not what the weights are.
    assert json.loads((output / "config.json").read_text()) == {"dtype": "float32", "vocab_size": 2}


def test_a_checkpoint_without_weights_is_not_exported(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, 1)
    (checkpoint / "actor" / "huggingface" / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="hf_model"):
        export.export(checkpoint, tmp_path / "out")
    assert not (tmp_path / "out").exists()
