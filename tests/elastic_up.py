"""`elastic up` in a process of its own, on a project with one small deployment."""

import contextlib
import os
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest

from elastic_core.system.network import free_ports
from flows.runtime.environment import read_variables
from tests.elastic_command import BEHIND_PROXY, ELASTIC
from tests.plain_install import PACKAGES

FLOW = """
    import os
    from pathlib import Path

    from prefect import flow

    @flow
    def touch(name: str) -> None:
        Path(name).write_text(os.environ["MLFLOW_TRACKING_URI"])
"""

FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
DEPLOYMENTS = """
    deployments:
      - name: small
        entrypoint: flow.py:touch
        parameters: {name: touched}
        work_pool: {name: elastic}
"""


def write_project(directory: Path) -> Path:
    """With packages of its own that have the names of ours."""
    for name in PACKAGES:
        (directory / name).mkdir()
        (directory / name / "__init__.py").write_text(f"raise SystemExit('the {name} of the project')")
    (directory / "flow.py").write_text(textwrap.dedent(FLOW))
    (directory / "prefect.yaml").write_text(textwrap.dedent(DEPLOYMENTS))
    return directory


def clean_environment() -> dict[str, str]:
    """Of a user without settings of their own."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MLFLOW", "ELASTIC"))}


def start(project: Path, environment: dict[str, str], prefect: int, mlflow: int, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [ELASTIC, "up", "--prefect-port", str(prefect), "--mlflow-port", str(mlflow), *more],
        cwd=project,
        env=environment | BEHIND_PROXY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def lines_until(process: subprocess.Popen[str], last: str) -> list[str]:
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if last in line:
            return lines
    raise AssertionError("".join(lines))


class Services(NamedTuple):
    """What `elastic up` started, and what it said."""

    process: subprocess.Popen[str]
    project: Path
    prefect_port: int
    mlflow_port: int
    lines: list[str]

    @property
    def mlflow(self) -> str:
        return f"http://127.0.0.1:{self.mlflow_port}"

    def worker(self) -> psutil.Process | None:
        for each in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # It may end while it is looked at.
                if "flows.commands.services.worker" in each.cmdline():
                    return each
        return None


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """One for the files that tests/conftest.py keeps together, whose last test ends it."""
    project, ports = write_project(tmp_path_factory.mktemp("project")), free_ports(2)
    # The worker asks for runs every second, not every ten.
    process = start(project, clean_environment() | {"PREFECT_WORKER_QUERY_SECONDS": "1"}, *ports)
    try:
        yield Services(process, project, *ports, lines_until(process, "Ctrl-C"))
    finally:
        process.terminate()
        process.wait(600)


def clients(runs: Path) -> dict[str, str]:
    """What `elastic up` tells the clients of its servers."""
    return read_variables(runs / "services" / "client.env")


class _Patient(httpx.HTTPTransport):
    """Sends a request again while the server answers 503 (its database is locked), as Prefect's own client does."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        deadline = time.monotonic() + 600
        while (response := super().handle_request(request)).status_code == 503 and time.monotonic() < deadline:
            response.close()
            time.sleep(0.2)
        return response


def prefect_client(runs: Path) -> httpx.Client:
    variables = clients(runs)
    user, password = variables["PREFECT_API_AUTH_STRING"].split(":")
    url, transport = variables["PREFECT_API_URL"], _Patient()
    return httpx.Client(base_url=url, auth=(user, password), trust_env=False, timeout=600, transport=transport)


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {seconds} s"
        time.sleep(0.2)


def begin(api: httpx.Client, deployment: str, **body: Any) -> str:
    """Id of a new run of a deployment, by the name FLOW/NAME or the id of that."""
    found = api.get(f"/deployments/name/{deployment}").json()["id"] if "/" in deployment else deployment
    created = api.post(f"/deployments/{found}/create_flow_run", json=body)
    assert created.status_code == 201, created.text
    return str(created.json()["id"])


def state(api: httpx.Client, run: str) -> dict[str, Any]:
    return dict(api.get(f"/flow_runs/{run}").json()["state"])


def ended(api: httpx.Client, run: str, seconds: float = 600) -> dict[str, Any]:
    """The state that a flow run ends in."""
    wait_for(lambda: state(api, run)["type"] in FINAL, seconds, f"end of the run, {state(api, run)['name']}")
    return state(api, run)
