"""Deployments: what the server and the worker of `elastic up` make of them, on the smoke preset."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import polars as pl
import pytest

from elastic_core.system.network import free_ports
from elastic_core.system.ray_cluster import local_cluster, prepare_process
from elastic_core.trajectory import KEY
from tests.e2e.conftest import read_table
from tests.elastic_up import (
    FINAL,
    begin,
    clean_environment,
    clients,
    ended,
    lines_until,
    prefect_client,
    start,
    state,
    wait_for,
)
from tests.exactness import recorded

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
NIGHTLY, SWEEP = "nightly/embedded", "sweep/evaluate-l1-max-1.5b"
"""Deployments; each takes any preset."""


@pytest.fixture(scope="module")
def runs_with_models(table: pl.DataFrame, runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs directory in which everything before the sweep has been done."""
    tmp_path = tmp_path_factory.mktemp("deployed")
    for stage in ("data", "train"):
        shutil.copytree(runs / "smoke" / stage, tmp_path / "smoke" / stage)
    return tmp_path


class Server(NamedTuple):
    """What `elastic up` started."""

    api: httpx.Client
    variables: dict[str, str]
    """Of client.env."""

    def mlflow_runs(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """The runs that MLflow has of the smoke preset, by label."""
        from mlflow import MlflowClient

        for name, value in self.variables.items():
            monkeypatch.setenv(name, value)
        client = MlflowClient(self.variables["MLFLOW_TRACKING_URI"])
        return {run.data.tags["elastic.label"]: run for run in recorded(client)}


@pytest.fixture(scope="module")
def server(runs_with_models: Path) -> Iterator[Server]:
    prepare_process()  # The worker and a test's own cluster share Ray's token.
    process = start(REPOSITORY, clean_environment() | {"ELASTIC_RUNS": str(runs_with_models)}, *free_ports(2))
    try:
        lines_until(process, "Ctrl-C")
        with prefect_client(runs_with_models) as client:
            yield Server(client, clients(runs_with_models))
    finally:
        process.terminate()
        process.wait(600)


def test_a_deployment_run_produces_the_same_table(
    server: Server, runs_with_models: Path, table: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = ended(server.api, begin(server.api, "pipeline/smoke"), 900)
    assert end["type"] == "COMPLETED", end["message"]
    columns = [*KEY, "response_ids", "forced", "score"]
    ours, theirs = (frame.select(columns).sort(KEY) for frame in (read_table(runs_with_models), table))
    assert ours.equals(theirs)
    assert (runs_with_models / "smoke" / "report" / "summary.json").exists()
    found = server.mlflow_runs(monkeypatch)
    assert all(run.info.status == "FINISHED" for run in found.values())
    assert {label.split("/")[1] for label in found} >= {"pipeline", "sweep", "report"}


def test_two_sweeps_of_one_table_queue(server: Server, runs_with_models: Path) -> None:
    parameters = {"preset": "smoke", "overrides": {"sweep.samples": 4}}
    both = [begin(server.api, SWEEP, parameters=parameters) for _ in range(2)]

    def queued() -> list[str]:
        return [run for run in both if state(server.api, run)["name"] == "AwaitingConcurrencySlot"]

    wait_for(queued, 600, "one of two runs to queue")
    assert [ended(server.api, run, 900)["type"] for run in both] == ["COMPLETED"] * 2
    table = read_table(runs_with_models)
    assert table.height == table.n_unique(KEY)
    assert set(table["sample"]) == {0, 1, 2, 3}


def test_cancelling_stops_the_ray_job(server: Server, runs_with_models: Path) -> None:
    with local_cluster() as cluster:
        joined = {"ray.address": cluster.gcs, "ray.dashboard": cluster.dashboard}
        before = set(runs_with_models.glob("smoke/train/*"))
        parameters = {"preset": "smoke", "overrides": {"train.steps": 1000, **joined}}
        run = begin(server.api, "pipeline/smoke", parameters=parameters)

        def is_training() -> bool:
            now = state(server.api, run)
            assert now["type"] not in FINAL, now["message"]
            logs = [stage / "train.log" for stage in set(runs_with_models.glob("smoke/train/*")) - before]
            return any("step:1 - " in log.read_text() for log in logs if log.exists())

        wait_for(is_training, 900, "the first step of training")
        jobs = [job.submission_id for job in cluster.client().list_jobs() if job.status == "RUNNING"]
        cancelling = {"type": "CANCELLING", "name": "Cancelling"}
        assert server.api.post(f"/flow_runs/{run}/set_state", json={"state": cancelling}).status_code == 201
        assert ended(server.api, run, 300)["type"] == "CANCELLED"
        (job,) = [job for job in jobs if job]
        wait_for(lambda: cluster.client().get_job_status(job) == "STOPPED", 600, "the job to stop")


def test_the_nightly_measurement_is_scheduled(server: Server) -> None:
    deployment = server.api.get(f"/deployments/name/{NIGHTLY}").json()
    assert [schedule["schedule"]["cron"] for schedule in deployment["schedules"]] == ["0 3 * * *"]


def test_a_scheduled_night_measures_base_and_appears_in_mlflow(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    nightly = server.api.get(f"/deployments/name/{NIGHTLY}").json()["id"]
    soon = datetime.now(UTC) + timedelta(seconds=60)  # A busy server plans late, and nothing that has passed.
    schedule = {
        # Prefect plans every run of the next hour at once.
        "schedule": {"interval": 1800, "anchor_date": soon.isoformat()},
        "active": True,
        "parameters": {"preset": "smoke", "overrides": {"sweep.samples": 1, "sweep.strategies": ["separate"]}},
    }
    added = server.api.post(f"/deployments/{nightly}/schedules", json=[schedule])
    assert added.status_code == 201, added.text

    def started() -> list[dict[str, Any]]:
        deployment = {"id": {"any_": [nightly]}}
        begun = {"deployments": deployment, "flow_runs": {"state": {"type": {"any_": ["RUNNING", *FINAL]}}}}
        return server.api.post("/flow_runs/filter", json=begun).json()

    wait_for(started, 600, "a run of the schedule")
    # Those already due go with it.
    server.api.delete(f"/deployments/{nightly}/schedules/{added.json()[0]['id']}")
    (run,) = started()
    assert "auto-scheduled" in run["tags"]
    end = ended(server.api, run["id"], 900)
    assert end["type"] == "COMPLETED", end["message"]
    found = server.mlflow_runs(monkeypatch)
    (history,) = [run for label, run in found.items() if label.startswith("smoke/nightly/") and label.endswith("/base")]
    assert "accuracy/miniature-easy/separate/48-32" in history.data.metrics
    nights = {found[label].data.tags["mlflow.parentRunId"] for label in found if label.startswith("smoke/sweep/")}
    assert history.data.tags["mlflow.parentRunId"] in nights
