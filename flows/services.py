"""`elastic up`: a Prefect server, an MLflow server and a worker on one machine, in the foreground until Ctrl-C.

supervisord keeps the processes: it restarts what crashes and stops whole process groups. This module writes its
configuration, waits until each service answers, and registers the deployments of prefect.yaml.

Not started: a service the user already has, named by PREFECT_API_URL or an http MLFLOW_TRACKING_URI.
Not promised: access control. Neither server asks who calls, so keep to loopback or put a proxy in front.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
from pydantic import BaseModel, ConfigDict, Field

from elastic_core.errors import UserError
from elastic_core.processes import end_with_parent
from flows.environment import RUNS_VARIABLE, runs_directory

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOP_SECONDS = 30
"""How long a service may take to end by itself before it is killed. A worker tells the server about its runs."""


class ServicesParameters(BaseModel):
    """What `elastic up` starts, and where."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address both servers listen on."""
    prefect_port: int = Field(4200, ge=1, le=65535)
    """Port of the Prefect server."""
    mlflow_port: int = Field(5000, ge=1, le=65535)
    """Port of the MLflow server."""
    work_pool: str = "elastic"
    """Work pool of type process that the worker serves."""
    project: Path = Path()
    """Directory of prefect.yaml; the worker and its flow runs work in it."""
    runs: Path = Field(default_factory=runs_directory)
    """Directory for databases, artifacts and logs."""
    start_seconds: float = Field(180, gt=0)
    """How long a service may take until it answers."""


class Service(NamedTuple):
    """One program under supervision."""

    name: str
    command: list[str]
    port: int | None = None
    """None for a program that listens on nothing."""
    address: str = ""
    """What the user opens."""
    health: str = ""
    """Answers 200 once the service is up."""


class Plan(NamedTuple):
    """What `up` will run."""

    services: list[Service]
    """Servers before the worker that calls them."""
    environment: dict[str, str]
    """What all of them see beside the user's own environment."""


class Supervisor:
    """A supervisord over some services, spoken to through a socket only this user can open.

    Args:
        plan: the programs. They are started by `start`, not before.
        directory: where configuration and logs go, one log per service.
        working_directory: what the programs run in.
    """

    def __init__(self, plan: Plan, directory: Path, working_directory: Path) -> None:
        self.logs = {service.name: directory / f"{service.name}.log" for service in plan.services}
        self._control = Path(tempfile.mkdtemp(prefix="elastic-"))  # A socket's path is limited to 107 bytes.
        directory.mkdir(parents=True, exist_ok=True)
        configuration = directory / "supervisord.conf"
        configuration.write_text(_configuration(plan.services, directory, self._control / "socket"))
        self.log = directory / "supervisord.log"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "--nodaemon", "--configuration", str(configuration)],
            cwd=working_directory,
            env={**os.environ, **plan.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us to handle: servers must outlive the worker.
            preexec_fn=end_with_parent,
        )

    def call(self, method: str, *arguments: Any) -> Any:
        """One of supervisord's XML-RPC methods; OSError while it is not there."""
        from xmlrpc.client import ServerProxy

        from supervisor.xmlrpc import SupervisorTransport

        socket = f"unix://{self._control / 'socket'}"
        with ServerProxy("http://localhost", transport=SupervisorTransport(serverurl=socket)) as proxy:
            return getattr(proxy.supervisor, method)(*arguments)

    def ready(self) -> bool:
        """Whether supervisord takes calls; raises if it has ended."""
        if self._process.poll() is not None:
            raise UserError(f"supervisord ended with status {self._process.returncode}{tail(self.log)}")
        try:
            return bool(self.call("getState"))
        except OSError:
            return False

    def start(self, name: str) -> None:
        self.call("startProcess", name, False)

    def check(self) -> None:
        """Raise if a service cannot be kept running."""
        if not self.ready():
            raise UserError(f"supervisord does not answer{tail(self.log)}")
        for process in self.call("getAllProcessInfo"):
            if process["statename"] == "FATAL":
                name = process["name"]
                raise UserError(f"{name} ends soon after each start{tail(self.logs[name])}")

    def stop(self) -> None:
        """End every process started under supervision, however deep and in whatever process group."""
        import shutil

        import psutil

        descendants: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            descendants = psutil.Process(self._process.pid).children(recursive=True)
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS + 10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _, alive = psutil.wait_procs(descendants, timeout=5)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(self._control, ignore_errors=True)


def up(parameters: ServicesParameters) -> None:
    """Start the services, print their addresses, and keep them until SIGINT or SIGTERM.

    Raises:
        UserError: a port is taken, prefect.yaml is missing, or a service does not come up; nothing is left running.
    """
    project = parameters.project.resolve()
    if not (project / "prefect.yaml").is_file():
        raise UserError(f"{project} has no prefect.yaml; run `elastic up` in the directory of the repository")
    planned = plan(parameters)
    for service in planned.services:
        if service.port:
            require_free_port(parameters.host, service.port, service.name)
    with _interruptible():
        supervisor = Supervisor(planned, parameters.runs.resolve() / "services", project)
        try:
            _start(supervisor, planned, parameters)
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


def plan(parameters: ServicesParameters) -> Plan:
    """The services to start, and the environment they share. Settings the user already made are kept."""
    runs = parameters.runs.resolve()
    host, python = parameters.host, sys.executable
    services = []
    prefect_url = os.environ.get("PREFECT_API_URL")
    if not prefect_url:
        port = parameters.prefect_port
        address = f"http://{_reachable(host)}:{port}"
        prefect_url = f"{address}/api"
        command = [python, "-m", "prefect", "server", "start", "--host", host, "--port", str(port)]
        services.append(Service("prefect", command, port, address, f"{prefect_url}/health"))
    mlflow_url = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{runs / 'mlflow.db'}"
    if not mlflow_url.startswith("http"):
        port = parameters.mlflow_port
        address = f"http://{_reachable(host)}:{port}"
        command = [
            *(python, "-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"),
            *("--backend-store-uri", mlflow_url, "--artifacts-destination", str(runs / "mlartifacts")),
        ]
        services.append(Service("mlflow", command, port, address, f"{address}/health"))
        mlflow_url = address
    command = [python, "-m", "prefect", "worker", "start", "--pool", parameters.work_pool, "--type", "process"]
    services.append(Service("worker", command))
    environment = {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_HOME": os.environ.get("PREFECT_HOME") or str(runs / "prefect"),
        "PREFECT_API_URL": prefect_url,
        "MLFLOW_TRACKING_URI": mlflow_url,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Background jobs of MLflow's evaluation service: a dozen processes nothing here asks for.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        RUNS_VARIABLE: str(runs),
    }
    return Plan(services, environment)


def deploy(work_pool: str, project: Path, environment: Mapping[str, str] | None = None) -> None:
    """Create the work pool unless it exists, and register every deployment of prefect.yaml.

    prefect.yaml names no directory: Prefect records `project` in the server as each run's working directory.

    Args:
        work_pool: a pool of type process.
        project: directory of prefect.yaml.
        environment: names the server by PREFECT_API_URL; None takes the process's own.

    Raises:
        UserError: Prefect refuses a deployment; the end of its own words is in the message.
    """
    environment = {**(environment or os.environ), "NO_COLOR": "1"}

    def prefect(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
        try:
            return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired as error:
            raise UserError(f"`prefect {' '.join(arguments)}` did not end within {error.timeout:.0f} s") from error

    # An existing pool may carry the user's own limits: it is looked for, never overwritten.
    commands = [["deploy", "--all"]]
    if prefect("work-pool", "inspect", work_pool).returncode:
        commands.insert(0, ["work-pool", "create", work_pool, "--type", "process"])
    for command in commands:
        done = prefect(*command)
        if done.returncode:
            reason = "\n".join((done.stdout + done.stderr).rstrip().splitlines()[-5:])
            server = environment.get("PREFECT_API_URL")
            raise UserError(f"`prefect {' '.join(command)}` failed in {project} with the server {server}:\n{reason}")


def require_free_port(host: str, port: int, service: str) -> None:
    """Raise UserError if `port` cannot be listened on, naming who has it where that can be known."""
    import socket

    family, kind, protocol, _, address = _resolve(host, port)
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise UserError(
                f"{service} cannot listen on {host} port {port} ({error.strerror}{_owner(port)}): "
                f"stop what uses it, or choose another port with --{service}-port"
            ) from error


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, as the end of an error message."""
    text = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
    return f"; the end of {log}:\n" + "\n".join(text or ["(empty)"])


def answers(url: str, *, proxies: bool = False) -> bool:
    """Whether `url` answers 200. A proxy of the environment's leads to the internet, not to our loopback."""
    import httpx

    try:
        return httpx.get(url, timeout=5, trust_env=proxies).status_code == 200
    except httpx.HTTPError:
        return False


def _start(supervisor: Supervisor, planned: Plan, parameters: ServicesParameters) -> None:
    """Servers, deployments, worker, in this order: each needs the one before."""
    *servers, worker = planned.services
    _wait(supervisor.ready, "supervisord", parameters.start_seconds, supervisor.log)
    for server in servers:
        supervisor.start(server.name)
    for server in servers:

        def is_up(url: str = server.health) -> bool:
            supervisor.check()
            return answers(url)

        what = f"{server.name} at {server.health}"
        _wait(is_up, what, parameters.start_seconds, supervisor.logs[server.name])
        click.echo(f"{server.name:8} {server.address}  log: {supervisor.logs[server.name]}")
    deploy(parameters.work_pool, parameters.project.resolve(), {**os.environ, **planned.environment})
    supervisor.start(worker.name)
    click.echo(f"{worker.name:8} serves work pool {parameters.work_pool}  log: {supervisor.logs[worker.name]}")


def _wait(condition: Callable[[], bool], what: str, seconds: float, log: Path) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise UserError(f"no answer within {seconds:.0f} s from {what}{tail(log)}")
        time.sleep(0.2)


def _configuration(services: list[Service], directory: Path, socket: Path) -> str:
    """supervisord.conf. Values are %-expanded by supervisord, so a literal % is doubled."""

    def section(name: str, **options: object) -> str:
        lines = (f"{key} = {str(value).replace('%', '%%')}" for key, value in options.items())
        return "\n".join([f"[{name}]", *lines, ""])

    return "\n".join(
        [
            section("unix_http_server", file=socket, chmod="0700"),
            "[rpcinterface:supervisor]",
            "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface\n",
            section(
                "supervisord",
                logfile=directory / "supervisord.log",
                logfile_maxbytes="1MB",
                pidfile=directory / "supervisord.pid",
                childlogdir=directory,
            ),
            *(
                section(
                    f"program:{service.name}",
                    command=shlex.join(service.command),
                    autostart="false",
                    autorestart="true",
                    # Imports alone take seconds: what ends sooner than this has failed to start, not crashed.
                    startsecs=20,
                    startretries=2,
                    stopasgroup="true",
                    killasgroup="true",
                    stopwaitsecs=_STOP_SECONDS,
                    # supervisord stops the highest priority first: the worker reports to servers still there.
                    priority=rank,
                    redirect_stderr="true",
                    stdout_logfile=directory / f"{service.name}.log",
                    stdout_logfile_maxbytes="10MB",
                    stdout_logfile_backups=1,
                )
                for rank, service in enumerate(services)
            ),
        ]
    )


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


def _reachable(host: str) -> str:
    """The address to call a server by that listens on `host`."""
    wildcard = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
    return wildcard.get(host, f"[{host}]" if ":" in host else host)


def _resolve(host: str, port: int) -> tuple[Any, ...]:
    import socket

    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        raise UserError(f"no address {host!r} on this machine ({error.strerror}); use 127.0.0.1") from error


def _owner(port: int) -> str:
    """ " by process N (name)" for a port one of the user's processes listens on; others' cannot be looked up."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f", by process {connection.pid}, {psutil.Process(connection.pid).name()}"
    return ""
