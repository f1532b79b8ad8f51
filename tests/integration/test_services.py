"""`elastic up` as a user meets it: a process of its own, real servers, a deployment run by the worker, Ctrl-C."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

pytestmark = pytest.mark.timeout(480)  # Half a minute on an idle machine; servers start slowly on a busy one.

FLOW = """
    import os
    from pathlib import Path

    from prefect import flow

    @flow
    def touch(name: str) -> None:
        Path(name).write_text(os.environ["MLFLOW_TRACKING_URI"])
"""

DEPLOYMENTS = """
    deployments:
      - name: small
        entrypoint: flow.py:touch
        parameters: {name: touched}
        work_pool: {name: elastic}
"""

UP = """
    import sys
    from pathlib import Path

    from elastic_core.errors import UserError
    from flows.services import ServicesParameters, up

    try:
        prefect, mlflow = map(int, sys.argv[1:])
        up(ServicesParameters(prefect_port=prefect, mlflow_port=mlflow, runs=Path("runs")))
    except UserError as error:
        sys.exit(f"error: {error}")
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "flow.py").write_text(textwrap.dedent(FLOW))
    (tmp_path / "prefect.yaml").write_text(textwrap.dedent(DEPLOYMENTS))
    return tmp_path


@pytest.fixture
def environment() -> dict[str, str]:
    """A user without settings of their own."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MLFLOW", "ELASTIC"))}


def start(project: Path, environment: dict[str, str], *ports: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(UP), *map(str, ports)],
        cwd=project,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def lines_until(process: subprocess.Popen[str], last: str) -> list[str]:
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if last in line:
            return lines
    raise AssertionError("".join(lines))


@pytest.fixture
def services(project: Path, environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], int, int, list[str]]]:
    ports = free_port(), free_port()
    process = start(project, environment, *ports)
    try:
        yield process, *ports, lines_until(process, "Ctrl-C")
    finally:
        process.terminate()
        process.wait(60)


def wait_for(condition, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {seconds} s"
        time.sleep(0.2)


def test_a_deployment_runs_a_crashed_worker_returns_and_ctrl_c_leaves_nothing(services, project: Path) -> None:
    process, prefect_port, mlflow_port, lines = services
    prefect, mlflow = f"http://127.0.0.1:{prefect_port}", f"http://127.0.0.1:{mlflow_port}"
    assert any(prefect in line for line in lines) and any(mlflow in line for line in lines)
    assert httpx.get(f"{mlflow}/health", trust_env=False).status_code == 200

    with httpx.Client(base_url=f"{prefect}/api", trust_env=False, timeout=30) as api:
        deployment = api.get("/deployments/name/touch/small").json()
        assert deployment["work_pool_name"] == "elastic"
        run = api.post(f"/deployments/{deployment['id']}/create_flow_run", json={}).json()
        wait_for(
            lambda: api.get(f"/flow_runs/{run['id']}").json()["state_type"] in ("COMPLETED", "FAILED", "CRASHED"),
            90,
            "finished flow run",
        )
        assert api.get(f"/flow_runs/{run['id']}").json()["state_type"] == "COMPLETED"
    # In the project's directory, with the tracking server that was started beside it.
    assert (project / "touched").read_text() == mlflow

    def worker() -> psutil.Process | None:
        for each in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # It may end while it is looked at.
                if "worker" in each.cmdline():
                    return each
        return None

    first = worker()
    assert first
    first.kill()
    wait_for(lambda: worker() not in (None, first), 60, "restarted worker")

    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert not [each for each in family if each.is_running()]
    for port in (prefect_port, mlflow_port):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port))


def test_a_taken_port_is_one_sentence(project: Path, environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start(project, environment, port, free_port())
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert output.startswith(f"error: prefect cannot listen on 127.0.0.1 port {port} ")
    assert f"process {os.getpid()}" in output and "--prefect-port" in output
    assert output.count("\n") == 1


def test_kill_9_leaves_nothing_either(project: Path, environment: dict[str, str]) -> None:
    environment |= {"PREFECT_API_URL": "http://127.0.0.1:9/api"}  # Only MLflow is started; deploying then fails late.
    process = start(project, environment, free_port(), free_port())
    lines_until(process, "mlflow")
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=40)
    assert not alive
