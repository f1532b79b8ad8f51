"""`elastic up` as a user meets it: a process of its own, real servers, a deployment run by the worker, Ctrl-C."""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import httpx
import psutil
import pytest

from elastic_core.system.network import free_ports
from flows.commands.services.deployments import register
from tests.command_lines import command_lines
from tests.documents import page
from tests.elastic_up import (
    Services,
    begin,
    clean_environment,
    clients,
    ended,
    lines_until,
    prefect_client,
    start,
    wait_for,
    write_project,
)

_PACKAGED = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
_FOUND = shutil.which("initdb") or (_PACKAGED[-1] if _PACKAGED else None)
BINARIES = Path(_FOUND).resolve().parent if _FOUND else None
"""Of PostgreSQL: Debian and Ubuntu put them beside PATH."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path)


@pytest.fixture
def environment() -> dict[str, str]:
    return clean_environment()


def mlflow_status(runs: Path, password: str) -> int:
    url = f"{clients(runs)['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/experiments/get?experiment_id=0"
    return httpx.get(url, auth=("elastic", password), trust_env=False, timeout=600).status_code


def test_nobody_gets_in_without_the_password(services: Services) -> None:
    runs = services.project / "runs"
    variables = clients(runs)
    file = runs / "services" / "client.env"
    assert file.stat().st_mode & 0o777 == 0o600
    assert {directory.stat().st_mode & 0o777 for directory in (file.parent, runs)} == {0o700}
    url = f"{variables['PREFECT_API_URL']}/flows/count"
    assert httpx.post(url, trust_env=False).status_code == 401
    assert httpx.post(url, auth=("elastic", "wrong"), trust_env=False).status_code == 401
    with prefect_client(runs) as api:
        assert api.post("/flows/count").status_code == 200
    assert mlflow_status(runs, "wrong") == 401
    assert mlflow_status(runs, variables["MLFLOW_TRACKING_PASSWORD"]) == 200
    passwords = [variables["MLFLOW_TRACKING_PASSWORD"], variables["PREFECT_API_AUTH_STRING"].partition(":")[2]]
    assert not [line for line in command_lines() if any(password in line for password in passwords)]


def test_a_deployment_runs_where_its_project_is_and_records_beside_it(services: Services) -> None:
    prefect, mlflow = f"http://127.0.0.1:{services.prefect_port}", services.mlflow
    assert any(prefect in line for line in services.lines) and any(mlflow in line for line in services.lines)
    assert httpx.get(f"{mlflow}/health", trust_env=False).status_code == 200

    with prefect_client(services.project / "runs") as api:
        assert api.get("/deployments/name/touch/small").json()["work_pool_name"] == "elastic"
        assert ended(api, begin(api, "touch/small"))["type"] == "COMPLETED"
    # In the project's directory, with the tracking server that was started beside it.
    assert (services.project / "touched").read_text() == mlflow


def test_what_a_person_paused_and_scheduled_as_documented_stays_when_deployments_are_registered_again(
    services: Services,
) -> None:
    text = page("operate").read_text()
    shown = text[text.index("    prefect deployment schedule create") : text.index("A deployment may have several")]
    lines = [line.strip() for line in shown.splitlines() if line.startswith("    ")]
    script = (
        "\n".join(lines)
        .replace("sweep/embedded", "touch/small")
        .replace('"overrides": {"sweep.samples": 32}', '"name": "t"')
    )
    variables = clean_environment() | clients(services.project / "runs")
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    done = subprocess.run(["bash", "-ec", script], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with prefect_client(services.project / "runs") as api:
        deployment = api.get("/deployments/name/touch/small").json()
        assert api.patch(f"/deployments/{deployment['id']}", json={"paused": True}).status_code == 204
        register(services.project, variables)
        deployment = api.get("/deployments/name/touch/small").json()
        assert deployment["paused"]
        interval, cron = sorted(deployment["schedules"], key=lambda each: "cron" in each["schedule"])
        assert (interval["schedule"]["interval"], interval["parameters"]) == (21600, {})
        assert (cron["schedule"]["cron"], cron["parameters"], cron["active"]) == ("0 2 * * *", {"name": "t"}, True)
        assert api.patch(f"/deployments/{deployment['id']}", json={"paused": False}).status_code == 204


def test_the_worker_runs_what_prefect_yaml_names_whatever_the_server_says(services: Services) -> None:
    """Somebody who can write to the server plants commands in every place that Prefect's own worker takes them from."""
    project = services.project
    (project / "touched").unlink(missing_ok=True)
    proof = project / "planted"
    variables = {"command": f"touch {proof}"}
    pulled = [{"prefect.deployments.steps.run_shell_script": {"script": f"touch {proof}"}}]
    template = {
        "job_configuration": {"command": f"touch {proof}", "env": {}},
        "variables": {"type": "object", "properties": {}},
    }
    with prefect_client(project / "runs") as api:
        known = api.get("/deployments/name/touch/small").json()
        body = {"flow_id": known["flow_id"], "work_pool_name": "elastic", "entrypoint": "flow.py:touch"}

        def plant(**fields: Any) -> None:
            assert api.patch(f"/deployments/{known['id']}", json=fields).status_code == 204

        def finished(deployment: str, **more: Any) -> dict[str, Any]:
            return ended(api, begin(api, deployment, **more))

        made = api.post("/deployments/", json={**body, "name": "foreign", "job_variables": variables})
        assert made.status_code in (200, 201), made.text
        foreign = finished(made.json()["id"])
        assert foreign["type"] == "CRASHED"
        assert "the deployment foreign (flow.py:touch) is none of" in foreign["message"]
        assert "small (flow.py:touch)" in foreign["message"]
        plant(entrypoint="elsewhere.py:touch")
        assert "the deployment small (elsewhere.py:touch) is none of" in finished(known["id"])["message"]

        plant(entrypoint="flow.py:touch", job_variables=variables, pull_steps=pulled)
        brought = finished(known["id"], job_variables=variables)
        assert brought["type"] == "CRASHED" and "brings job variables (command)" in brought["message"]
        assert api.patch("/work_pools/elastic", json={"base_job_template": template}).status_code == 204
        assert finished(known["id"])["type"] == "COMPLETED"
    assert (project / "touched").exists() and not proof.exists()


def test_a_crashed_worker_returns(services: Services) -> None:
    first = services.worker()
    assert first
    first.kill()
    wait_for(lambda: services.worker() not in (None, first), 600, "restarted worker")


def test_ctrl_c_leaves_nothing(services: Services) -> None:
    family = psutil.Process(services.process.pid).children(recursive=True)
    assert family
    os.killpg(services.process.pid, signal.SIGINT)
    assert services.process.wait(600) == 130
    # The machine's first process may take its time to bury what has ended.
    assert not [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    for port in (services.prefect_port, services.mlflow_port):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port))


@pytest.mark.slow
def test_kill_9_leaves_nothing_either(project: Path, environment: dict[str, str]) -> None:
    environment |= {"PREFECT_API_URL": "http://127.0.0.1:9/api"}  # Only MLflow is started; deploying then fails late.
    process = start(project, environment, free_ports(1)[0], free_ports(1)[0])
    lines_until(process, "mlflow")
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=600)
    assert not alive


@pytest.fixture
def postgresql(project: Path) -> Iterator[tuple[int, str]]:
    """Port, and password of the role `elastic`, of a server that has the two databases."""
    port, password = free_ports(1)[0], "se:cret@" + secrets.token_hex(8)
    # It refuses to run as root, and pytest's own directories let nobody else in.
    user = "nobody" if os.geteuid() == 0 else None
    # Not where this process keeps its own files, which another user does not enter.
    with tempfile.TemporaryDirectory(prefix="elastic-", dir="/tmp") as directory:
        words = Path(directory, "password")
        words.write_text(password)
        if user:
            shutil.chown(directory, user)
            shutil.chown(words, user)
        options = ["--username=elastic", f"--pwfile={words}", "--auth=scram-sha-256", "--locale=C", "--encoding=UTF8"]
        data = f"{directory}/data"
        subprocess.run([BINARIES / "initdb", "-D", data, *options], user=user, cwd="/", check=True, capture_output=True)
        listen = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        server = subprocess.Popen([BINARIES / "postgres", "-D", data, "-p", str(port), *listen], user=user, cwd="/")
        try:
            wait_for(lambda: not socket.socket().connect_ex(("127.0.0.1", port)), 600, "PostgreSQL")
            for name in ("prefect", "mlflow"):
                query(port, password, "postgres", f"CREATE DATABASE {name}")
            yield port, password
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(600)


@pytest.mark.slow
@pytest.mark.skipif(BINARIES is None, reason="needs PostgreSQL's initdb: sudo apt-get install postgresql")
def test_both_servers_keep_their_data_in_postgresql(
    project: Path, environment: dict[str, str], postgresql: tuple[int, str]
) -> None:
    port, password = postgresql
    runs = project / "runs"
    address = f"postgresql://elastic:{quote(password, safe='')}@127.0.0.1:{port}"
    # Not as an option: a process that was just forked still has its parent's command line.
    environment |= {"ELASTIC_DATABASE": address}
    for _ in range(2):  # The second time over what the first left.
        process = start(project, environment, free_ports(1)[0], free_ports(1)[0])
        try:
            output = "".join(lines_until(process, "Ctrl-C"))
            assert {"flow_run", "deployment"} <= tables(port, password, "prefect")
            assert {"runs", "metrics"} <= tables(port, password, "mlflow")
            with prefect_client(runs) as api:
                assert api.get("/deployments/name/touch/small").json()["work_pool_name"] == "elastic"
            family = psutil.Process(process.pid).children(recursive=True)
            assert listening(family, elsewhere=True) == set()
            shown = output + "".join(" ".join(each.cmdline()) for each in family if each.is_running())
            files = [file for file in (*runs.rglob("*.log*"), *runs.rglob("*.conf")) if file.is_file()]
            logs = "".join(file.read_text() for file in files)
            held = [password, quote(password, safe=""), *clients(runs)["PREFECT_API_AUTH_STRING"].split(":")[1:]]
            assert logs and not [secret for secret in held if secret in shown or secret in logs]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(600) == 130
        assert not [each for each in family if each.is_running()]


def tables(port: int, password: str, database: str) -> set[str]:
    """Names of the tables in a database."""
    rows = query(port, password, database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    return {row["tablename"] for row in rows}


def query(port: int, password: str, database: str, statement: str) -> list[asyncpg.Record]:
    async def ask() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=port, user="elastic", database=database, password=password
        )
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()

    return asyncio.run(ask())


def listening(processes: list[psutil.Process], *, elsewhere: bool = False) -> set[int]:
    """Ports that any of the processes listens on: on loopback, or elsewhere."""
    addresses = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for connection in process.net_connections():
                if connection.status == psutil.CONN_LISTEN:
                    addresses.add(connection.laddr)
    return {address.port for address in addresses if (address.ip != "127.0.0.1") == elsewhere}
