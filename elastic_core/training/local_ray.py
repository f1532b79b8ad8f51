"""A Ray cluster of one node on this machine, for as long as a context lasts. Everything listens on loopback only."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from elastic_core.processes import end_with_parent

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

_HOST = "127.0.0.1"
_ANSWER_SECONDS = 60
"""How long a job server may take to answer a request."""
_PORTS = (
    "port",
    "dashboard-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
    "ray-client-server-port",
    "node-manager-port",
    "object-manager-port",
)


class RayCluster(NamedTuple):
    """How to reach a Ray cluster.

    Attributes:
        dashboard: where jobs are submitted, such as http://127.0.0.1:8265.
        gcs: for `ray.init`, host:port; None when the cluster is remote.
        token: what the cluster authenticates requests by; None leaves it to Ray's own environment variables.
        head: id of the head's process, when this one started it.
    """

    dashboard: str
    gcs: str | None = None
    token: str | None = None
    head: int | None = None

    @property
    def headers(self) -> dict[str, str] | None:
        """HTTP headers that authenticate a request."""
        return None if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def client(self) -> "JobSubmissionClient":
        """Raises:
        ConnectionError: when the job server does not answer.
        """
        from ray.job_submission import JobSubmissionClient

        class Client(JobSubmissionClient):
            """Ray's, which by itself waits for ever for an answer."""

            def _do_request(self, *args: Any, **kwargs: Any) -> Any:
                return super()._do_request(*args, timeout=_ANSWER_SECONDS, **kwargs)

        return Client(self.dashboard, headers=self.headers)

    def has_ended(self) -> bool:
        """Whether the head that this process started is gone. Of any other it cannot be known: it may come back."""
        import psutil

        try:
            return self.head is not None and psutil.Process(self.head).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def nodes(self) -> list[tuple[int, int]]:
        """GPUs and logical CPUs of each node that is up."""
        from ray.util.state import StateApiClient
        from ray.util.state.common import ListApiOptions, StateResource

        client = StateApiClient(address=self.dashboard, headers=self.headers)
        nodes = client.list(StateResource.NODES, ListApiOptions(), raise_on_missing_output=True)
        alive = [node.resources_total for node in nodes if node.state == "ALIVE"]
        return [(int(node.get("GPU", 0)), int(node.get("CPU", 0))) for node in alive]


@contextmanager
def local_cluster(
    *, cpus: int = 32, gpus: int = 1, object_store_bytes: int = 1 << 30, deadline_seconds: float = 120
) -> Iterator[RayCluster]:
    """Start a Ray head, and stop exactly what was started.

    Args:
        cpus, gpus: logical ones. verl reserves CPUs by the dozen and trains on GPUs only, so on a CPU both are
            pretended.
        deadline_seconds: for the dashboard to answer.

    Raises:
        TimeoutError: when it did not answer, with the end of Ray's own output.
        RuntimeError: when Ray exited instead.
    """
    # Unix sockets below it have paths of some 70 characters, of 107 allowed.
    directory = Path(tempfile.mkdtemp(prefix="ray-"))
    output = directory / "head.log"
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
        *(f"--node-ip-address={_HOST}", f"--dashboard-host={_HOST}", "--include-dashboard=true"),
        *(f"--num-cpus={cpus}", f"--num-gpus={gpus}", f"--object-store-memory={object_store_bytes}"),
        *(f"--{name}={port}" for name, port in ports.items()),
        f"--temp-dir={directory}",
    ]
    token = prepare_process()
    # Jobs say `python`; it has to be this one. An address from outside would make Ray join that cluster.
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with output.open("wb") as log:
        head = subprocess.Popen(
            command,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=end_with_parent,  # An orphaned job would write checkpoints beside the next one.
        )
    cluster = RayCluster(f"http://{_HOST}:{ports['dashboard-port']}", f"{_HOST}:{ports['port']}", token, head.pid)
    try:
        _wait(head, cluster, output, deadline_seconds)
        yield cluster
    finally:
        _stop(head)
        shutil.rmtree(directory, ignore_errors=True)


def prepare_process() -> str:
    """Set what Ray reads once, when it is first imported, for this process and its children; the cluster's token.

    A process that wants more of a local cluster than to submit jobs calls this before anything imports Ray; verl does.
    """
    # The job server runs whatever it is sent; without a token that is anyone on this machine.
    os.environ["RAY_AUTH_MODE"] = "token"
    # Ray's only way to stay on loopback, whatever the name says: else it takes the machine's own address.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    return os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _wait(head: "subprocess.Popen[bytes]", cluster: RayCluster, output: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        if head.poll() is not None:
            raise RuntimeError(f"ray start exited with {head.returncode}:\n{_tail(output)}")
        waited_for = "its job server to answer"
        with suppress(OSError, RuntimeError):  # What just starts may hang up: an OSError of requests.
            cluster.client().list_jobs()
            waited_for = "its node to join"
            if cluster.nodes():
                return
        if time.monotonic() > until:
            raise TimeoutError(f"Ray at {cluster.dashboard}: waited {seconds:g} s for {waited_for}\n{_tail(output)}")
        time.sleep(0.2)


def _stop(head: "subprocess.Popen[bytes]", grace_seconds: float = 45) -> None:
    """The head stops its own processes on SIGTERM; what survives it is in its session."""
    if head.poll() is None:
        head.terminate()
        try:
            head.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            head.kill()
            head.wait()
    with suppress(ProcessLookupError):
        os.killpg(head.pid, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((_HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def _tail(file: Path, lines: int = 20) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
