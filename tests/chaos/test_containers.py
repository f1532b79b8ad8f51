"""The containers of infra/: the image is built, its services are started as compose.yaml says, and PostgreSQL and the
worker are killed at their work."""

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from mlflow import MlflowClient

from elastic_core.system.retry import wait_until
from elastic_core.trajectory import CELL, KEY
from tests.containers import INFRA, Compose, build, run
from tests.e2e.conftest import read_table
from tests.exactness import recorded, shards

PORTS = (4200, 5000, 5432, 8000, 9090)
"""Of the services, which share this machine's network."""
DEPLOYMENT = "sweep/evaluate-l1-max-1.5b"
"""Takes any preset."""
SAMPLES = 40
SWEEP = {"preset": "smoke", "overrides": {"sweep.models": ["base"], "sweep.samples": SAMPLES}}
OUTAGE_SECONDS = 10
"""Of the database: a sweep tells Prefect of its progress every 5 s."""
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

NEEDED = all(map(shutil.which, ("buildah", "debootstrap", "unshare"))) and os.geteuid() == 0
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(7200),  # Everything of the lock is installed.
    pytest.mark.skipif(not NEEDED, reason="needs root, and apt-get install buildah debootstrap"),
]


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """The image of compose.yaml, built, and none of the services yet."""
    taken = [port for port in PORTS if not socket.socket().connect_ex(("127.0.0.1", port))]
    if taken:
        pytest.skip(f"other programs have the ports {taken} of compose.yaml")
    compose = Compose(tmp_path_factory.mktemp("compose"))
    build("cpu", compose.directory)
    try:
        yield compose
    finally:
        compose.remove()
        run("buildah", "rmi", "elastic-reasoning:cpu")


def test_a_sweep_loses_nothing_with_its_worker_and_the_database(
    compose: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    compose.up("postgresql", "prefect", "mlflow", "worker")
    worker, postgresql = compose.containers["worker"], compose.containers["postgresql"]
    runs = compose.directory / "runs"
    auth = ("elastic", compose.passwords["PREFECT_PASSWORD"])
    with httpx.Client(base_url="http://127.0.0.1:4200/api", auth=auth, trust_env=False, timeout=600) as api:

        def start() -> str:
            deployment = api.get(f"/deployments/name/{DEPLOYMENT}").json()["id"]
            return api.post(f"/deployments/{deployment}/create_flow_run", json={"parameters": SWEEP}).json()["id"]

        def state(run: str) -> str:
            try:
                return api.get(f"/flow_runs/{run}").json()["state_type"]
            except (httpx.TransportError, KeyError):  # While it has no database.
                return "unknown"

        assert "<html" in api.get("http://127.0.0.1:4200/", headers={"Accept": "text/html"}).text
        registered = wait_until(lambda: api.get(f"/deployments/name/{DEPLOYMENT}").is_success, 600)
        assert registered, worker.log.read_text()
        first = start()
        assert wait_until(lambda: bool(shards(runs)) or state(first) in ENDED, 1200)
        assert state(first) == "RUNNING", worker.log.read_text()[-6000:]
        worker.kill()
        kept = shards(runs)
        worker.start()
        # The deployment runs once at a time: the second waits until the slot of the first is given up.
        second = start()
        assert wait_until(lambda: len(shards(runs)) > len(kept) or state(second) in ENDED, 1200)
        assert state(second) == "RUNNING", worker.log.read_text()[-6000:]
        postgresql.kill()
        time.sleep(OUTAGE_SECONDS)
        postgresql.start()
        assert wait_until(lambda: state(second) in ENDED, 1800)
        assert state(second) == "COMPLETED", worker.log.read_text()[-6000:]
        assert wait_until(lambda: state(first) == "CRASHED", 600)
    assert kept and kept.items() <= shards(runs).items(), "finished shards are never written again"
    table = read_table(runs)
    print(f"{len(kept)} of {len(shards(runs))} files were written before the kill, {table.height} rows in the end")
    assert table.height == table.n_unique(KEY)
    assert set(table.group_by(*CELL, "problem").len()["len"]) == {SAMPLES}
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "elastic")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", compose.passwords["MLFLOW_PASSWORD"])
    client = MlflowClient("http://127.0.0.1:5000")
    assert {run.info.run_name: run.info.status for run in recorded(client)}["sweep"] == "FINISHED"


def test_a_client_is_served_and_prometheus_sees_it(compose: Compose) -> None:
    compose.up("serve", "prometheus")
    for container in ("serve", "prometheus"):
        compose.containers[container].wait()
    arguments: dict[str, Any] = {"messages": [{"role": "user", "content": "36+6-4+8=?"}], "model": "base"}
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none").chat.completions.create(**arguments)
    key = compose.passwords["VLLM_API_KEY"]
    client = openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key=key)
    (answer,) = client.chat.completions.create(**arguments).choices
    assert answer.message.content
    told = (answer.model_extra or {})["elastic"]
    assert told["thinking_tokens"] <= 48 and told["solution_tokens"] <= 32

    prometheus = httpx.Client(base_url="http://127.0.0.1:9090/api/v1", trust_env=False)

    def value(expression: str) -> list[Any]:
        response = prometheus.get("/query", params={"query": expression})
        assert response.is_success, f"{expression}: {response.text}"
        return response.json()["data"]["result"]

    assert wait_until(lambda: bool(value("elastic_requests_total > 0")), 600)
    assert [each["value"][1] for each in value('up{job="elastic-serve"}')] == ["1"]
    # What Grafana would ask for; it sets its variables itself.
    panels = json.loads((INFRA / "grafana" / "serve.json").read_text())["panels"]
    for target in (target for panel in panels for target in panel.get("targets", [])):
        value(target["expr"].replace("$level", ".*").replace("$__rate_interval", "1m"))
