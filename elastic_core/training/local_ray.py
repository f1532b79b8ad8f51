"""A Ray cluster on this machine, for as long as a context lasts. Everything listens on loopback only, asks for a token,
and keeps its files where no other user gets to them."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from elastic_core.accelerators import count_gpus
from elastic_core.network import HOST, ON_LOOPBACK, free_ports
from elastic_core.processes import end_with_parent
from elastic_core.ray_cluster import RayCluster
from elastic_core.retry import wait_until

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


@contextmanager
def local_cluster(
    *, nodes: int = 1, cpus: int = 32, gpus: int = 1, object_store_bytes: int = 1 << 30, deadline_seconds: float = 120
) -> Iterator[RayCluster]:
    """Start a Ray head, and further nodes if there shall be any, and stop exactly what was started.

    Args:
        cpus, gpus: logical ones of each node. verl reserves CPUs by the dozen and trains on GPUs only, so on a CPU both
            are pretended.
        deadline_seconds: for the dashboard to answer, and every node to join.

    Raises:
        TimeoutError: when it did not answer, with the end of Ray's own output.
        RuntimeError: when Ray exited instead.
    """
    # Ray lets everybody write in its directory, who could then have it write elsewhere as us: nobody gets to it. The
    # names are short, as Unix sockets below it have paths of some 75 characters, of 107 allowed.
    private = Path(tempfile.mkdtemp(prefix="ray-"))
    directory = private / "t"
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    gcs = f"{HOST}:{ports['port']}"
    token = prepare_process()
    environment = _environment(pretended=gpus > count_gpus())
    started: list[subprocess.Popen[bytes]] = []

    def start(module: str, *arguments: str) -> Path:
        output = private / f"node-{len(started)}.log"
        started.append(_start(["-m", module, *arguments], environment, output))
        return output

    try:
        output = start(
            *("ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
            *(f"--node-ip-address={HOST}", f"--dashboard-host={HOST}", "--include-dashboard=true"),
            *(f"--num-cpus={cpus}", f"--num-gpus={gpus}", f"--object-store-memory={object_store_bytes}"),
            *(f"--{name}={port}" for name, port in ports.items()),
            f"--temp-dir={directory}",
        )
        cluster = RayCluster(f"http://{HOST}:{ports['dashboard-port']}", gcs, token, started[0].pid)
        _wait(started[0], cluster, 1, output, deadline_seconds)
        for number in range(2, nodes + 1):
            output = start("elastic_core.training.local_node", gcs, str(cpus), str(gpus), str(object_store_bytes))
            _wait(started[-1], cluster, number, output, deadline_seconds)
        yield cluster
    finally:
        for process in reversed(started):
            _stop(process)
        shutil.rmtree(private, ignore_errors=True)


def _environment(*, pretended: bool) -> dict[str, str]:
    """Of a node, and so of the jobs that it runs."""
    # An address from outside would make Ray join that cluster, and GPUs that are pretended are none of the visible.
    outside = {"RAY_ADDRESS", *(["CUDA_VISIBLE_DEVICES"] if pretended else [])}
    return {
        **ON_LOOPBACK,
        "VLLM_HOST_IP": HOST,
        **{name: value for name, value in os.environ.items() if name not in outside},
        # Jobs say `python`; it has to be this one.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def _start(arguments: list[str], environment: dict[str, str], output: Path) -> "subprocess.Popen[bytes]":
    """A node, in a session of its own."""
    with output.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=end_with_parent,  # An orphaned job would write checkpoints beside the next one.
        )


def prepare_process() -> str:
    """Set what Ray reads once, when it is first imported, for this process and its children; the cluster's token.

    A process that wants more of a local cluster than to submit jobs calls this before anything imports Ray; verl does.
    """
    # The job server runs whatever it is sent; without a token that is anyone on this machine.
    os.environ["RAY_AUTH_MODE"] = "token"
    # Ray's only way to stay on loopback, whatever the name says: else it takes the machine's own address.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    return os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _wait(process: "subprocess.Popen[bytes]", cluster: RayCluster, nodes: int, output: Path, seconds: float) -> None:
    """Return when the job server answers and so many nodes have joined."""
    waited_for = ""

    def is_ready() -> bool:
        nonlocal waited_for
        if process.poll() is not None:
            raise RuntimeError(f"ray start exited with {process.returncode}:\n{_tail(output)}")
        waited_for = "its job server to answer"
        with suppress(OSError, RuntimeError):  # What just starts may hang up: an OSError of requests.
            cluster.client().list_jobs()
            waited_for = f"node {nodes} to join"
            return len(cluster.nodes()) >= nodes
        return False

    if not wait_until(is_ready, seconds, every=0.2):
        raise TimeoutError(f"Ray at {cluster.dashboard}: waited {seconds:g} s for {waited_for}\n{_tail(output)}")


def _stop(node: "subprocess.Popen[bytes]", grace_seconds: float = 45) -> None:
    """A node stops its own processes on SIGTERM; what survives it is in its session."""
    if node.poll() is None:
        node.terminate()
        try:
            node.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            # Ray's workers lead process groups of their own.
            if os.getsid(process.pid) == node.pid:
                process.kill()


def _tail(file: Path, lines: int = 20) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
