"""Programs kept running by supervisord, which restarts crashed programs and stops process groups."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined

from elastic_core.errors import UserError
from elastic_core.system.network import answers
from elastic_core.system.processes import PYTHON, end_with_parent
from elastic_core.system.retry import wait_until

_CONFIGURATION = Path(__file__).with_name("supervisord.conf.j2")
_START_SECONDS = 180  # How long a service may take until it answers.
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
    """A supervisord over services, in the order they need each other, with variables on top of the user's environment,
    a directory of configuration and logs, and a working directory. It takes calls through a socket that only this user
    can open. On leaving its context all services end."""

    def __init__(
        self, services: Sequence[Service], environment: Mapping[str, str], directory: Path, working_directory: Path
    ) -> None:
        self.logs = {service.name: directory / f"{service.name}.log" for service in services}
        self._control = Path(tempfile.mkdtemp(prefix="elastic-"))  # A socket's path is limited to 107 bytes.
        configuration = directory / "supervisord.conf"
        configuration.write_text(configure(services, directory, self._control / "socket"))
        self.log = directory / "supervisord.log"
        self._process = subprocess.Popen(
            [*PYTHON, "-m", "supervisor.supervisord", "--nodaemon", "--configuration", str(configuration)],
            cwd=working_directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not reach the servers: they outlive the worker.
            preexec_fn=end_with_parent,
        )

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        """End the services, the worker first. `attended` kills every process that they leave running."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS + 10)
        shutil.rmtree(self._control, ignore_errors=True)

    def call(self, method: str, *arguments: Any) -> Any:
        """One of supervisord's XML-RPC methods; OSError while it is not there."""
        from xmlrpc.client import ServerProxy

        from supervisor.xmlrpc import SupervisorTransport

        socket = f"unix://{self._control / 'socket'}"
        with ServerProxy("http://localhost", transport=SupervisorTransport(serverurl=socket)) as proxy:
            return getattr(proxy.supervisor, method)(*arguments)

    def start(self, *services: Service) -> None:
        """Start services, all together, and wait until each answers. UserError when one does not."""
        self._wait(self._takes_calls, "supervisord", self.log)
        for service in services:
            self.call("startProcess", service.name, False)
        for service in filter(lambda each: each.health, services):
            what, log = f"{service.name} at {service.address}", self.logs[service.name]
            self._wait(partial(self._is_up, service), what, log)

    def check(self) -> None:
        """Raise UserError if a service cannot be kept running."""
        if not self._takes_calls():
            raise UserError(f"supervisord does not answer{tail(self.log)}")
        for process in self.call("getAllProcessInfo"):
            if process["statename"] == "FATAL":
                name = process["name"]
                raise UserError(f"{name} ends soon after each start{tail(self.logs[name])}")

    def _takes_calls(self) -> bool:
        """Whether supervisord takes calls; raises if it has ended."""
        if self._process.poll() is not None:
            raise UserError(f"supervisord ended with status {self._process.returncode}{tail(self.log)}")
        try:
            return bool(self.call("getState"))
        except OSError:
            return False

    def _is_up(self, service: Service) -> bool:
        self.check()
        return answers(service.health)

    def _wait(self, condition: Callable[[], bool], what: str, log: Path) -> None:
        if not wait_until(condition, _START_SECONDS, every=0.2):
            raise UserError(f"no answer within {_START_SECONDS} s from {what}{tail(log)}")


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, as the end of an error message."""
    text = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
    return f"; the end of {log}:\n" + "\n".join(text or ["(empty)"])


def configure(services: Sequence[Service], directory: Path, socket: Path) -> str:
    """supervisord.conf. supervisord %-expands values, so a literal % is doubled."""
    environment = Environment(
        trim_blocks=True, undefined=StrictUndefined, finalize=lambda value: str(value).replace("%", "%%")
    )
    template = environment.from_string(_CONFIGURATION.read_text(encoding="utf-8"))
    commands = [(service.name, shlex.join(service.command)) for service in services]
    return template.render(commands=commands, directory=directory, socket=socket, stop_seconds=_STOP_SECONDS)
