"""kill -9 of the pipeline at the worst moments; the same command afterwards finishes the work and repeats nothing."""

import signal
import subprocess
from pathlib import Path

import polars as pl
import psutil
import pytest
from mlflow import MlflowClient

from elastic_core.system.retry import wait_until
from elastic_core.trajectory import KEY
from tests.elastic_command import ELASTIC, elastic, environment
from tests.exactness import recorded, shards
from tests.processes import command_of, descendants

STAGES = ("data", "warm-start", "train", "sweep", "report")
MOMENTS = {
    "warm-start": "smoke/warm-start/*/run/checkpoints/latest_checkpointed_iteration.txt",
    "train": "smoke/train/*/checkpoints/latest_checkpointed_iteration.txt",
    "sweep": "smoke/tables/*/*.parquet",
}
"""What exists once the stage is in the middle of its work."""
COMMAND = ("run", "pipeline", "--preset", "smoke", "--set", "base=warm-start")


@pytest.mark.parametrize("stage", MOMENTS)
def test_a_killed_pipeline_goes_on_where_it_was(stage: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [ELASTIC, *COMMAND],
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        moment = MOMENTS[stage]
        assert wait_until(lambda: process.poll() is not None or bool(list(tmp_path.glob(moment))), 600, every=0.05)
        assert process.poll() is None, f"the pipeline ended before {moment} appeared"
        family = descendants(process.pid, "")
        # Prefect's temporary server is the next command's to end.
        servers = [each for each in family if "prefect.server.api.server:create_app" in command_of(each)]
        process.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs([each for each in family if each not in servers], timeout=600)
    assert not alive, f"left behind: {[p.cmdline() for p in alive]}"
    before = shards(tmp_path)

    again = elastic(*COMMAND, runs=tmp_path)

    assert again.returncode == 0, again.stdout[-6000:]
    assert not any(server.is_running() for server in servers)
    for earlier in STAGES[: STAGES.index(stage)]:
        assert f"{earlier}: done before, nothing to do" in again.stdout
    table = pl.read_parquet(list(shards(tmp_path)))
    assert table.height == table.n_unique(KEY)
    assert before.items() <= shards(tmp_path).items(), "finished shards are never written again"
    runs = {run.info.run_name: run for run in recorded(MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}"))}
    for recorded_stage in STAGES[1:]:
        assert runs[recorded_stage].info.status == "FINISHED"
        assert runs[recorded_stage].data.tags["mlflow.parentRunId"] == runs["pipeline"].info.run_id
    assert "pipeline: done before" in elastic(*COMMAND, runs=tmp_path).stdout
