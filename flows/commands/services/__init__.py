"""`elastic up`: a Prefect server, an MLflow server and a worker on one machine, in the foreground until Ctrl-C.

Both servers keep their data in SQLite, where `elastic run` without a server keeps it too; or in a PostgreSQL server of
the user's, for many parallel runs. Both ask for a password, generated at the first start: a client that may start a
flow run may run any program as this user.

Not started: a service the user already has, named by PREFECT_API_URL or an http MLFLOW_TRACKING_URI.
Not promised: encryption. To listen on more than loopback, put a proxy with TLS in front.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click
import httpx
import psycopg2
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from elastic_core.errors import UserError
from elastic_core.system.network import bypass_proxies, reachable, require_free_port
from elastic_core.system.processes import PYTHON
from flows import presets
from flows.commands.options import PORT
from flows.commands.services.deployments import WORK_POOL, register
from flows.commands.services.supervisor import Service, Supervisor
from flows.runtime.environment import (
    NO_OTHER_PAGES,
    RUNS_VARIABLE,
    USER,
    new_password,
    prefect_files,
    read_variables,
    runs_directory,
    without_login,
    write_private,
    write_variables,
)
from tasks.records.stage_directory import PAGE

_NOTE = "mlflow.note.content"  # MLflow's tag with the description of a run.
_DATABASES = ("prefect", "mlflow")
"""Of the PostgreSQL server: one each, as both would call a table `alembic_version`."""


@dataclass(frozen=True)
class ServicesParameters:
    """What `elastic up` starts, and where: the servers' address, ports and PostgreSQL server as of `database_server`
    (None: SQLite files), the worker's directory with prefect.yaml, and the runs directory for all files."""

    host: str = "127.0.0.1"
    prefect_port: int = 4200
    mlflow_port: int = 5000
    database: str | None = field(default=None, repr=False)
    project: Path = Path()
    runs: Path = field(default_factory=runs_directory)

    @property
    def directory(self) -> Path:
        """Logs and passwords; private to the user."""
        return self.runs.resolve() / "services"

    @property
    def clients(self) -> Path:
        """Environment variables of the servers' clients: addresses and passwords."""
        return self.directory / "client.env"


class Plan(NamedTuple):
    """What `up` runs: each service after those that it calls, the worker last; the variables of all of them on top of
    the user's environment; and the part of it that clients need."""

    services: list[Service]
    environment: dict[str, str]
    clients: dict[str, str]


@click.command()
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--prefect-port", type=PORT, default=4200)
@click.option("--mlflow-port", type=PORT, default=5000)
@click.option(
    "--database",
    metavar="URL",
    envvar="ELASTIC_DATABASE",
    show_envvar=True,
    help="PostgreSQL server, postgresql://USER:PASSWORD@HOST:PORT, with the databases prefect and mlflow. Without it "
    "SQLite files. Every user of the machine can read a command line, so give a password in the variable.",
)
def up(**parameters: Any) -> None:
    """Start Prefect, MLflow and a worker; Ctrl-C stops them.

    The worker runs the deployments of prefect.yaml.
    """
    run_services(ServicesParameters(**parameters))


def run_services(parameters: ServicesParameters) -> None:
    """Start the services, print their addresses, keep them until KeyboardInterrupt, which it raises. Raises UserError,
    with nothing left running, when a port is taken, prefect.yaml or a database is missing, a service fails."""
    project = parameters.project.resolve()
    if not (project / "prefect.yaml").is_file():
        raise UserError(f"{project} has no prefect.yaml; run `elastic up` in the directory of the repository")
    database = None if parameters.database is None else database_server(parameters.database)
    if database:
        login = {"host": database.host, "port": database.port}
        login |= {"user": database.username, "password": database.password}
        for name in _DATABASES:
            try:
                psycopg2.connect(**login, dbname=name, connect_timeout=10).close()
            except psycopg2.OperationalError as error:
                reason = " ".join(str(error).split())
                wanted = f"--database: no database {name} to work with ({reason})"
                raise UserError(f"{wanted}; see docs/operate.md") from None
    bypass_proxies(reachable(parameters.host).strip("[]"))
    directory = parameters.directory
    for private in (parameters.runs, directory):
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    planned = plan(parameters, read_variables(parameters.clients), database)
    for service in planned.services:
        if service.port:
            require_free_port(parameters.host, service.port, service.name)
    write_variables(parameters.clients, planned.clients)
    *servers, worker = planned.services  # Each needs the ones before, and the worker the deployments.
    with Supervisor(planned.services, planned.environment, directory, project) as supervisor:
        supervisor.start(*servers)
        for server in servers:
            click.echo(f"{server.name:10} {server.address}  log: {supervisor.logs[server.name]}")
        register(project, {**os.environ, **planned.environment})
        supervisor.start(worker)
        click.echo(f"{worker.name:10} serves work pool {WORK_POOL}  log: {supervisor.logs[worker.name]}")
        for what, address in links({**os.environ, **planned.clients}, parameters.runs.resolve()):
            click.echo(f"{what}: {address}")
        read = shlex.join([".", str(parameters.clients)])
        click.echo(f"passwords: {parameters.clients}; in a shell: set -a; {read}; set +a")
        click.echo("Ctrl-C stops them all.")
        while True:
            time.sleep(1)
            supervisor.check()


def plan(parameters: ServicesParameters, held: Mapping[str, str], database: URL | None = None) -> Plan:
    """The services to start, and the environment they share. The user's own settings are kept, and the passwords of an
    earlier start (`held`, its `Plan.clients`)."""
    runs = parameters.runs.resolve()
    servers = [_prefect(parameters, held, database), _mlflow(parameters, held, database)]
    clients = {name: value for server in servers for name, value in server.clients.items()}
    environment = {
        "PYTHONSAFEPATH": "1",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        **prefect_files(runs),
        # The automation for dead runs waits for ten of these seconds.
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        # Prefect answers so while its database restarts; a client then tries for a minute before its run fails.
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Background jobs of MLflow's evaluation service: a dozen processes nothing here asks for.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        RUNS_VARIABLE: str(runs),
        # asyncpg and libpq read it, so that it is on no command line and in no address that a server may show.
        **({"PGPASSWORD": str(database.password)} if database and database.password else {}),
        **{name: value for server in servers for name, value in server.environment.items()},
        **clients,
    }
    worker = [*PYTHON, "-m", "flows.commands.services.worker"]
    services = [each for server in servers for each in server.services]
    return Plan([*services, Service("worker", worker)], environment, clients)


def database_server(address: str) -> URL:
    """The PostgreSQL server of `postgresql://USER:PASSWORD@HOST:PORT`. Raises UserError for anything else, without
    repeating it: a password may be in any part."""
    with contextlib.suppress(ArgumentError, ValueError):
        server = make_url(address)
        named = server.username and server.host and "@" not in server.host
        if server.drivername == "postgresql" and named and not server.database and not server.query:
            return server
    raise UserError(
        "--database (or ELASTIC_DATABASE) is not the address of a PostgreSQL server: expected postgresql://"
        "USER:PASSWORD@HOST:PORT, special characters of the password as %XX, and nothing behind the port"
    )


def _database_url(server: URL, driver: str, name: str) -> str:
    """SQLAlchemy's address of one of the databases, without the password."""
    return str(URL.create(f"postgresql+{driver}", server.username, host=server.host, port=server.port, database=name))


def _prefect(parameters: ServicesParameters, held: Mapping[str, str], database: URL | None) -> Plan:
    host, port = parameters.host, parameters.prefect_port
    address = f"http://{reachable(host)}:{port}"
    url = os.environ.get("PREFECT_API_URL") or f"{address}/api"
    if url != f"{address}/api":  # A shell that read client.env names ours.
        return Plan([], {}, {"PREFECT_API_URL": url})
    command = [*PYTHON, "-m", "prefect", "server", "start", "--host", host, "--port", str(port)]
    password = held.get("PREFECT_API_AUTH_STRING") or f"{USER}:{new_password()}"
    environment = {"PREFECT_SERVER_API_AUTH_STRING": password, **NO_OTHER_PAGES}
    if database:
        environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = _database_url(database, "asyncpg", "prefect")
    clients = {"PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": password}
    return Plan([Service("prefect", command, port, address, f"{url}/health")], environment, clients)


def _mlflow(parameters: ServicesParameters, held: Mapping[str, str], database: URL | None) -> Plan:
    host, port, runs = parameters.host, parameters.mlflow_port, parameters.runs.resolve()
    address = f"http://{reachable(host)}:{port}"
    url, given = without_login(os.environ.get("MLFLOW_TRACKING_URI") or address)
    if url.startswith("http") and url != address:
        return Plan([], {}, {"MLFLOW_TRACKING_URI": url, **given})
    own = _database_url(database, "psycopg2", "mlflow") if database else f"sqlite:///{runs / 'mlflow.db'}"
    command = [
        *(*PYTHON, "-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"),
        *("--artifacts-destination", str(runs / "mlartifacts"), "--app-name", "basic-auth"),
    ]
    # MLflow keeps its users apart from its runs, and without a cache takes half a second to hash a password.
    file = parameters.directory / "mlflow.ini"
    users = str(parameters.directory / "mlflow-users.db").replace("%", "%%")
    options = {"default_permission": "READ", "database_uri": f"sqlite:///{users}", "auth_cache_ttl_seconds": 60}
    write_private(file, "[mlflow]\n" + "".join(f"{name} = {value}\n" for name, value in options.items()))
    password = held.get("MLFLOW_TRACKING_PASSWORD") or new_password()
    environment = {
        # The address may hold a password, and every user can read a command line.
        "MLFLOW_BACKEND_STORE_URI": own if url == address else url,
        "MLFLOW_AUTH_CONFIG_PATH": str(file),
        "MLFLOW_AUTH_ADMIN_USERNAME": USER,
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": new_password(),
    }
    login = {"MLFLOW_TRACKING_USERNAME": USER, "MLFLOW_TRACKING_PASSWORD": password}
    clients = {"MLFLOW_TRACKING_URI": address, **login}
    return Plan([Service("mlflow", command, port, address, f"{address}/health")], environment, clients)


def links(variables: Mapping[str, str], runs: Path) -> Iterator[tuple[str, str]]:
    """Titles and addresses of the last run's pages: MLflow's chart of accuracy over tokens, and the report. `variables`
    is the environment of MLflow's clients."""
    if (last := presets.last_run()) is None:
        return
    try:
        preset = presets.resolve(*last).preset
    except UserError:  # Its file is gone, or was changed.
        return
    address = variables["MLFLOW_TRACKING_URI"]
    user, password = (variables.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD"))
    with (
        contextlib.suppress(httpx.HTTPError),  # The services run without it.
        httpx.Client(
            base_url=f"{address}/api/2.0/mlflow/", auth=(user, password), trust_env=False, timeout=30
        ) as server,
    ):
        if (page := _chart(server, preset)) is not None:
            yield f"accuracy over tokens of {preset}", f"{address}/{page}"
    report = runs / preset / "report" / PAGE
    if report.exists():
        yield f"report of {preset}", report.as_uri()


def _chart(server: httpx.Client, preset: str) -> str | None:
    """The first chart in the description of the preset's newest sweep. HTTPError where MLflow has no such preset."""
    found = server.get("experiments/get-by-name", params={"experiment_name": preset}).raise_for_status().json()
    newest = {"filter": "tags.stage = 'sweep'", "order_by": ["attributes.start_time DESC"], "max_results": 1}
    wanted = {"experiment_ids": [found["experiment"]["experiment_id"]], **newest}
    sweeps = server.post("runs/search", json=wanted).raise_for_status().json().get("runs", ())
    notes = [tag["value"] for run in sweeps for tag in run["data"]["tags"] if tag["key"] == _NOTE]
    chart = re.search(r"\((#/metric\?[^)]+)\)", " ".join(notes))
    return chart and chart[1]
