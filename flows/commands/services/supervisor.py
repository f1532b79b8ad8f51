"""Programs kept running by supervisord, which restarts what crashes and stops whole process groups."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.errors import UserError
from elastic_core.system.processes import end_with_parent

_STOP_SECONDS = 30
"""How long a service may take to end by itself before it is killed. A worker tells the server about its runs."""


class Service(NamedTuple):
    """One program under supervision: the port it listens on, if any, its address for users, and the address that
    answers 200 once it is up."""

    name: str
    command: list[str]
    port: int | None = None
    address: str = ""
    health: str = ""


class Supervisor:
    """A supervisord over some services, which takes calls through a socket that only this user can open.

    Args:
        services: the programs, in the order they need each other; `start` starts them.
        environment: what all of them see beside the user's own.
        directory: of configuration and logs, one log per service.
        working_directory: what the programs run in.
    """

    def __init__(
        self, services: Sequence[Service], environment: Mapping[str, str], directory: Path, working_directory: Path
    ) -> None:
        self.logs = {service.name: directory / f"{service.name}.log" for service in services}
        self._control = Path(tempfile.mkdtemp(prefix="elastic-"))  # A socket's path is limited to 107 bytes.
        configuration = directory / "supervisord.conf"
        configuration.write_text(configure(services, directory, self._control / "socket"))
        self.log = directory / "supervisord.log"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "--nodaemon", "--configuration", str(configuration)],
            cwd=working_directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not reach the servers: they outlive the worker.
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


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, as the end of an error message."""
    text = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
    return f"; the end of {log}:\n" + "\n".join(text or ["(empty)"])


def configure(services: Sequence[Service], directory: Path, socket: Path) -> str:
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
