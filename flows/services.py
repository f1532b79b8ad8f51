"""`elastic up`: a Prefect server, an MLflow server and a worker on one machine, in the foreground until Ctrl-C.

Both servers keep their data in SQLite, where `elastic run` without a server keeps it too, so that all runs are seen; or
in PostgreSQL, for many runs at once. Every server asks for a password, generated at the first start: whoever may start
a flow run may run any program as this user.

Not started: a service the user already has, named by PREFECT_API_URL or an http MLFLOW_TRACKING_URI.
Not promised: encryption. Listening on more than loopback wants a proxy in front that adds TLS.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import click
from pydantic import BaseModel, ConfigDict, Field

from elastic_core.errors import UserError
from flows import postgresql
from flows.deployments import WORK_POOL, register
from flows.environment import NO_OTHER_PAGES, RUNS_VARIABLE, runs_directory
from flows.passwords import USER, new_password, read_variables, write_private, write_variables
from flows.ports import reachable, require_free_port
from flows.supervisor import Service, Supervisor, tail

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ServicesParameters(BaseModel):
    """What `elastic up` starts, and where."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address both servers listen on."""
    prefect_port: int = Field(4200, ge=1, le=65535)
    """Port of the Prefect server."""
    mlflow_port: int = Field(5000, ge=1, le=65535)
    """Port of the MLflow server."""
    database: Literal["sqlite", "postgresql"] = "sqlite"
    """Where both keep their data: in SQLite files, or in a PostgreSQL server started beside them, on loopback."""
    postgresql_port: int = Field(5433, ge=1, le=65535)
    """Port of that PostgreSQL server; 5432 is often taken by the distribution's own."""
    project: Path = Path()
    """Directory of prefect.yaml; the worker and its flow runs work in it."""
    runs: Path = Field(default_factory=runs_directory)
    """Directory for databases, artifacts, passwords and logs."""
    start_seconds: float = Field(180, gt=0)
    """How long a service may take until it answers."""

    @property
    def directory(self) -> Path:
        """Logs and passwords; nobody else may enter it."""
        return self.runs.resolve() / "services"

    @property
    def clients(self) -> Path:
        """Where the servers are and what they are to be told, as environment variables."""
        return self.directory / "client.env"


class Plan(NamedTuple):
    """What `up` will run."""

    services: list[Service]
    """Each after those it calls; the worker is the last."""
    environment: dict[str, str]
    """What all of them see beside the user's own environment."""
    clients: dict[str, str]
    """The part of it that a client of the servers started here needs."""


def up(parameters: ServicesParameters) -> None:
    """Start the services, print their addresses, and keep them until SIGINT or SIGTERM.

    Raises:
        UserError: a port is taken, prefect.yaml or PostgreSQL is missing, or a service does not come up; nothing is
            left running.
    """
    project = parameters.project.resolve()
    if not (project / "prefect.yaml").is_file():
        raise UserError(f"{project} has no prefect.yaml; run `elastic up` in the directory of the repository")
    directory = parameters.directory
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    with _interruptible():
        planned = plan(parameters, read_variables(parameters.clients), _cluster(parameters))
        for service in planned.services:
            if service.port:
                host = postgresql.HOST if service.name == "postgresql" else parameters.host
                require_free_port(host, service.port, service.name)
        write_variables(parameters.clients, planned.clients)
        supervisor = Supervisor(planned.services, planned.environment, directory, project)
        try:
            _start(supervisor, planned, parameters, project)
            click.echo(f"passwords: {parameters.clients}; in a shell: set -a; . {parameters.clients}; set +a")
            click.echo("Ctrl-C stops them all.")
            while True:
                time.sleep(1)
                supervisor.check()
        except KeyboardInterrupt:
            click.echo("stopping")
        finally:
            # A second Ctrl-C must not leave half of it running; stopping takes a bounded time.
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            supervisor.stop()


def plan(parameters: ServicesParameters, held: Mapping[str, str], database: postgresql.Cluster | None = None) -> Plan:
    """The services to start, and the environment they share. Settings the user already made are kept.

    Args:
        held: passwords of an earlier start, as `Plan.clients` gave them.
        database: where the servers keep their data; None is SQLite.
    """
    runs = parameters.runs.resolve()
    servers = [_prefect(parameters, held, database), _mlflow(parameters, held, database)]
    clients = {name: value for server in servers for name, value in server.clients.items()}
    environment = {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_HOME": os.environ.get("PREFECT_HOME") or str(runs / "prefect"),
        # The automation for dead runs waits for ten of these seconds.
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Background jobs of MLflow's evaluation service: a dozen processes nothing here asks for.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        RUNS_VARIABLE: str(runs),
        **({"PGPASSFILE": str(database.passwords)} if database else {}),
        **{name: value for server in servers for name, value in server.environment.items()},
        **clients,
    }
    worker = [sys.executable, "-m", "flows.worker"]
    services = [
        *([database.service()] if database else []),
        *(service for server in servers for service in server.services),
        Service("worker", worker),
    ]
    return Plan(services, environment, clients)


def _prefect(parameters: ServicesParameters, held: Mapping[str, str], database: postgresql.Cluster | None) -> Plan:
    host, port = parameters.host, parameters.prefect_port
    address = f"http://{reachable(host)}:{port}"
    url = os.environ.get("PREFECT_API_URL") or f"{address}/api"
    if url != f"{address}/api":  # A shell that read client.env names ours.
        return Plan([], {}, {"PREFECT_API_URL": url})
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", host, "--port", str(port)]
    password = held.get("PREFECT_API_AUTH_STRING") or f"{USER}:{new_password()}"
    environment = {"PREFECT_SERVER_API_AUTH_STRING": password, **NO_OTHER_PAGES}
    if database:
        environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database.url("asyncpg", "prefect")
    return Plan(
        [Service("prefect", command, port, address, partial(answers, f"{url}/health"))],
        environment,
        {"PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": password},
    )


def _mlflow(parameters: ServicesParameters, held: Mapping[str, str], database: postgresql.Cluster | None) -> Plan:
    host, port, runs = parameters.host, parameters.mlflow_port, parameters.runs.resolve()
    address = f"http://{reachable(host)}:{port}"
    url = os.environ.get("MLFLOW_TRACKING_URI") or address
    if url.startswith("http") and url != address:
        return Plan([], {}, {"MLFLOW_TRACKING_URI": url})
    own = database.url("psycopg2", "mlflow") if database else f"sqlite:///{runs / 'mlflow.db'}"
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", own if url == address else url),
        *("--artifacts-destination", str(runs / "mlartifacts"), "--app-name", "basic-auth"),
    ]
    password = held.get("MLFLOW_TRACKING_PASSWORD") or new_password()
    environment = {
        "MLFLOW_AUTH_CONFIG_PATH": str(_mlflow_configuration(parameters.directory)),
        "MLFLOW_AUTH_ADMIN_USERNAME": USER,
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": new_password(),
    }
    clients = {
        "MLFLOW_TRACKING_URI": address,
        "MLFLOW_TRACKING_USERNAME": USER,
        "MLFLOW_TRACKING_PASSWORD": password,
    }
    return Plan(
        [Service("mlflow", command, port, address, partial(answers, f"{address}/health"))], environment, clients
    )


def _mlflow_configuration(directory: Path) -> Path:
    """MLflow keeps its users apart from its runs, and hashes a password for half a second unless told to remember."""
    file = directory / "mlflow.ini"
    users = str(directory / "mlflow-users.db").replace("%", "%%")
    lines = [
        "[mlflow]",
        "default_permission = READ",
        f"database_uri = sqlite:///{users}",
        "auth_cache_ttl_seconds = 60",
    ]
    write_private(file, "\n".join([*lines, ""]))
    return file


def _cluster(parameters: ServicesParameters) -> postgresql.Cluster | None:
    if parameters.database == "sqlite":
        return None
    directory = parameters.runs.resolve() / "postgresql"
    return postgresql.cluster(directory, parameters.postgresql_port, ("prefect", "mlflow"))


def answers(url: str, *, proxies: bool = False) -> bool:
    """Whether `url` answers 200. A proxy of the environment's leads to the internet, not to our loopback."""
    import httpx

    try:
        return httpx.get(url, timeout=5, trust_env=proxies).status_code == 200
    except httpx.HTTPError:
        return False


def _start(supervisor: Supervisor, planned: Plan, parameters: ServicesParameters, project: Path) -> None:
    """Database, servers, deployments, worker, in this order: each needs the ones before."""
    *servers, worker = planned.services
    _wait(supervisor.ready, "supervisord", parameters.start_seconds, supervisor.log)
    databases = [server for server in servers if server.name == "postgresql"]
    for together in (databases, [server for server in servers if server not in databases]):
        for server in together:
            supervisor.start(server.name)
        for server in together:
            _wait_for_service(supervisor, server, parameters.start_seconds)
    register(project, {**os.environ, **planned.environment})
    supervisor.start(worker.name)
    click.echo(f"{worker.name:10} serves work pool {WORK_POOL}  log: {supervisor.logs[worker.name]}")


def _wait_for_service(supervisor: Supervisor, service: Service, seconds: float) -> None:
    log = supervisor.logs[service.name]

    def is_up() -> bool:
        supervisor.check()
        return service.is_up is None or service.is_up()

    _wait(is_up, f"{service.name} at {service.address}", seconds, log)
    click.echo(f"{service.name:10} {service.address}  log: {log}")


def _wait(condition: Callable[[], bool], what: str, seconds: float, log: Path) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise UserError(f"no answer within {seconds:.0f} s from {what}{tail(log)}")
        time.sleep(0.2)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt inside, as SIGINT does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
