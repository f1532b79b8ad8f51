"""The pipeline as a Prefect deployment: a server, a worker, and the same tables as from the command line."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import polars as pl
import pytest

from elastic_core.trajectory import KEY
from tests.e2e.conftest import read_table
from tests.elastic_command import ELASTIC, environment

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs_with_models(table: pl.DataFrame, runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs directory in which everything before the sweep has been done."""
    tmp_path = tmp_path_factory.mktemp("deployed")
    for stage in ("data", "warm-start", "train"):
        shutil.copytree(runs / "smoke" / stage, tmp_path / "smoke" / stage)
    return tmp_path


@pytest.fixture(scope="module")
def prefect_api(runs_with_models: Path) -> Iterator[httpx.Client]:
    """The API of the server that `elastic up` starts."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        prefect, mlflow = (each.getsockname()[1] for each in sockets)
    clean = {k: v for k, v in environment(runs_with_models).items() if not k.startswith(("PREFECT", "MLFLOW"))}
    process = subprocess.Popen(
        [ELASTIC, "up", "--prefect-port", str(prefect), "--mlflow-port", str(mlflow)],
        cwd=REPOSITORY,
        env={**clean, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert any("Ctrl-C" in line for line in process.stdout), "elastic up ended before it was ready"
        with httpx.Client(base_url=f"http://127.0.0.1:{prefect}/api", trust_env=False, timeout=30) as client:
            yield client
    finally:
        process.terminate()
        process.wait(90)


def test_a_deployment_run_produces_the_same_table(
    prefect_api: httpx.Client, runs_with_models: Path, table: pl.DataFrame
) -> None:
    deployment = prefect_api.get("/deployments/name/pipeline/smoke").json()
    run = prefect_api.post(f"/deployments/{deployment['id']}/create_flow_run", json={}).json()
    until = time.monotonic() + 420
    while (state := prefect_api.get(f"/flow_runs/{run['id']}").json()["state"])["type"] not in (
        "COMPLETED",
        "FAILED",
        "CRASHED",
    ):
        assert time.monotonic() < until, f"the run is still {state['name']}"
        time.sleep(1)
    assert state["type"] == "COMPLETED", state["message"]
    columns = [*KEY, "response_ids", "forced", "score"]
    ours, theirs = (frame.select(columns).sort(KEY) for frame in (read_table(runs_with_models), table))
    assert ours.equals(theirs)
    assert (runs_with_models / "smoke" / "report" / "summary.json").exists()


def test_the_nightly_sweep_is_scheduled(prefect_api: httpx.Client) -> None:
    deployment = prefect_api.get("/deployments/name/sweep/nightly").json()
    assert [schedule["schedule"]["cron"] for schedule in deployment["schedules"]] == ["0 3 * * *"]
