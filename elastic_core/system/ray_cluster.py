"""Ray clusters: how to reach one, and local ones that last as long as a context.

A local cluster listens on loopback only, asks for a token, and keeps its files in a directory that only this user may
enter. Its further nodes are this module run as a program:

    python -m elastic_core.system.ray_cluster GCS_ADDRESS CPUS GPUS OBJECT_STORE_BYTES
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from elastic_core.system.accelerators import count_gpus
from elastic_core.system.network import HOST, ON_LOOPBACK, bypass_proxies, free_ports
from elastic_core.system.processes import PYTHON, end_with_parent, kill_tree
from elastic_core.system.retry import wait_until

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

_ANSWER_SECONDS = 60
"""How long a job server may take to answer a request."""
_START_SECONDS = 600
"""How long the dashboard may take to answer, and every node to join, on a machine that is overloaded."""
_PORTS = (
    *("port", "dashboard-port", "dashboard-agent-listen-port", "dashboard-agent-grpc-port", "runtime-env-agent-port"),
    *("metrics-export-port", "ray-client-server-port", "node-manager-port", "object-manager-port"),
)


class RayCluster(NamedTuple):
    """How to reach a Ray cluster: the address for jobs, such as http://127.0.0.1:8265, host:port for `ray.init` (None:
    remote), the token of requests (None: as Ray's environment says), and the process id of a head of ours."""

    dashboard: str
    gcs: str | None = None
    token: str | None = None
    head: int | None = None

    @property
    def headers(self) -> dict[str, str] | None:
        return None if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def client(self) -> "JobSubmissionClient":
        """ConnectionError when the job server does not answer."""
        from ray.job_submission import JobSubmissionClient

        class Client(JobSubmissionClient):
            """A client with a timeout, which Ray's lacks."""

            def _do_request(self, *args: Any, **kwargs: Any) -> Any:
                return super()._do_request(*args, timeout=_ANSWER_SECONDS, **kwargs)

        return Client(self.dashboard, headers=self.headers)

    def has_ended(self) -> bool:
        """Whether the head that this process started is gone; False for any other, which may come back."""
        try:
            return self.head is not None and psutil.Process(self.head).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def nodes(self) -> list[tuple[int, int]]:
        """GPUs and logical CPUs of each node that is up; ConnectionError when the dashboard does not say."""
        from ray.util.state import StateApiClient
        from ray.util.state.common import ListApiOptions, StateResource
        from ray.util.state.exception import RayStateApiException

        client = StateApiClient(address=self.dashboard, headers=self.headers)
        try:
            nodes = client.list(StateResource.NODES, ListApiOptions(), raise_on_missing_output=True)
        except RayStateApiException as error:
            raise ConnectionError(str(error)) from None
        alive = [node.resources_total for node in nodes if node.state == "ALIVE"]
        return [(int(node.get("GPU", 0)), int(node.get("CPU", 0))) for node in alive]


PATIENCE = {
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
    "RAY_gcs_server_request_timeout_seconds": "600",
    "RAY_py_gcs_connect_timeout_s": "600",
    "RAY_health_check_timeout_ms": "60000",
}
"""How long a local head may be slow; values in the environment win. By Ray's defaults its processes, the driver among
them, exit when the head has not answered for a minute, as on a machine that is overloaded."""
SMALL_STORE = 1 << 30
"""Bytes of the object store of a node that has no GPU."""


@contextmanager
def local_cluster(
    *, nodes: int = 1, cpus: int = 32, gpus: int = 1, object_store_bytes: int | None = None
) -> Iterator[RayCluster]:
    """Start a Ray head and further nodes, with logical CPUs and GPUs each, and stop exactly these. verl
    reserves CPUs by the dozen, and GPUs even where it trains on a CPU. TimeoutError when Ray did not answer,
    RuntimeError when it exited instead, with the end of its output.

    Args:
        object_store_bytes: of each node; by default Ray's part of a GPU machine's memory, as verl sends a validation
            in one piece, and programs bring their tests; `SMALL_STORE` elsewhere.
    """
    if object_store_bytes is None and not count_gpus():
        object_store_bytes = SMALL_STORE
    # Ray's directory lets every user write, hence a private one around it. The names are short: Unix sockets below
    # TMPDIR have up to 78 characters more, of 107 allowed.
    private = Path(tempfile.mkdtemp(prefix="r"))
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    gcs = f"{HOST}:{ports['port']}"
    token = prepare_process()
    # RAY_ADDRESS would make Ray join that cluster, and pretended GPUs are not among the visible.
    outside = {"RAY_ADDRESS", *(["CUDA_VISIBLE_DEVICES"] if gpus > count_gpus() else [])}
    environment = {
        **ON_LOOPBACK,
        "VLLM_HOST_IP": HOST,
        **{name: value for name, value in os.environ.items() if name not in outside},
        # Jobs say `python`; it has to be this one.
        "PATH": f"{Path(PYTHON[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    cluster = RayCluster(f"http://{HOST}:{ports['dashboard-port']}", gcs, token)
    started: list[subprocess.Popen[bytes]] = []

    def start(module: str, *arguments: str) -> None:
        output = private / f"node-{len(started)}.log"
        with output.open("wb") as log:
            process = subprocess.Popen(
                [*PYTHON, "-m", module, *arguments],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=end_with_parent,  # An orphaned job would write checkpoints where the next one does.
            )
        started.append(process)
        _wait(process, cluster, len(started), output)

    try:
        start(
            *("ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
            *(f"--node-ip-address={HOST}", f"--dashboard-host={HOST}", "--include-dashboard=true"),
            *(f"--num-cpus={cpus}", f"--num-gpus={gpus}"),
            *([] if object_store_bytes is None else [f"--object-store-memory={object_store_bytes}"]),
            *(f"--{name}={port}" for name, port in ports.items()),
            f"--temp-dir={private / 't'}",
        )
        for _ in range(nodes - 1):
            start("elastic_core.system.ray_cluster", gcs, str(cpus), str(gpus), str(object_store_bytes or SMALL_STORE))
        yield cluster._replace(head=started[0].pid)
    finally:
        # Killed: a clean end takes most of a minute on a busy machine, and a job keeps its results in files.
        for process in reversed(started):
            kill_tree(process.pid)
            process.wait()
        shutil.rmtree(private, ignore_errors=True)


class _Kept:
    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: tuple[tuple[int, int], RayCluster] | None = None

    def take(self, nodes: int, gpus: int) -> RayCluster:
        """The one that runs, or a new one in its place where that has ended or is of another shape."""
        if self._running is None or self._running[0] != (nodes, gpus) or self._running[1].has_ended():
            self.stop()
            started = self._stack.enter_context(local_cluster(nodes=nodes, cpus=32 * gpus, gpus=gpus))
            self._running = ((nodes, gpus), started)
        return self._running[1]

    def stop(self) -> None:
        self._running = None
        self._stack.close()


_kept: ContextVar[_Kept | None] = ContextVar("kept", default=None)


@contextmanager
def kept_cluster() -> Iterator[None]:
    """Inside, `running_cluster` keeps its local cluster for the next call with the same shape, but after an error."""
    kept = _Kept()
    before = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(before)
        kept.stop()


@contextmanager
def running_cluster(
    running: RayCluster | None, nodes: int = 1, pretended_gpus: int | None = None
) -> Iterator[RayCluster]:
    """The running cluster, or a local one that lasts as long as the context, or as `kept_cluster`, with `nodes` of
    `pretended_gpus` logical GPUs each (None: those that this process may use)."""
    if running is not None:
        yield running
        return
    kept = _kept.get()
    local = kept or _Kept()
    with ExitStack() as ending:
        ending.callback(local.stop)
        # verl needs one, if only pretended.
        yield local.take(nodes, pretended_gpus or max(1, count_gpus()))
        if kept is not None:
            ending.pop_all()


_joined: RayCluster | None = None


def joined_head_has_ended() -> bool:
    """Whether the cluster that this process is `connected` to has lost its head; see `RayCluster.has_ended`."""
    return _joined is not None and _joined.has_ended()


@contextmanager
def connected(cluster: RayCluster) -> Iterator[None]:
    """This process as a driver of the cluster, for its actors. ConnectionError when its head is gone."""
    import ray

    global _joined
    try:
        ray.init(address=cluster.gcs, log_to_driver=False, namespace="elastic")
    except ConnectionError as error:
        raise ConnectionError(f"{error}; when it is up again, the same command goes on") from None
    _joined = cluster
    try:
        yield
    finally:
        _joined = None
        ray.shutdown()


def prepare_process() -> str:
    """Set what Ray reads at its first import, for this process and its children; the cluster's token. A process that
    does more with a local cluster than to submit jobs calls this before anything, such as verl, imports Ray."""
    bypass_proxies()
    # Without a token the job server runs the jobs of any user of this machine.
    os.environ["RAY_AUTH_MODE"] = "token"
    # Despite its name, Ray's only way to stay on loopback instead of the machine's address.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ.update(PATIENCE | dict(os.environ))
    return os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _wait(process: "subprocess.Popen[bytes]", cluster: RayCluster, nodes: int, output: Path) -> None:
    waited_for = ""

    def said() -> str:
        return "\n".join(output.read_text(errors="replace").splitlines()[-20:])

    def is_ready() -> bool:
        nonlocal waited_for
        if process.poll() is not None:
            raise RuntimeError(f"ray start exited with {process.returncode}:\n{said()}")
        waited_for = "its job server to answer"
        with suppress(OSError, RuntimeError):  # What just starts may hang up: an OSError of requests.
            cluster.client().list_jobs()
            waited_for = f"node {nodes} to join"
            return len(cluster.nodes()) >= nodes
        return False

    if not wait_until(is_ready, _START_SECONDS, every=0.2):
        raise TimeoutError(f"Ray at {cluster.dashboard}: waited {_START_SECONDS} s for {waited_for}\n{said()}")


def _join() -> None:
    """Be a node until SIGTERM. `ray start` joins no cluster on loopback, so this does the same as Ray's
    `cluster_utils.Cluster.add_node` does."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    gcs, cpus, gpus, object_store = sys.argv[1:]
    parameters = RayParams(
        gcs_address=gcs,
        node_ip_address=gcs.partition(":")[0],
        num_cpus=int(cpus),
        num_gpus=int(gpus),
        object_store_memory=int(object_store),
        min_worker_port=0,
        max_worker_port=0,
        node_manager_port=0,
        dashboard_agent_listen_port=None,
        include_log_monitor=False,
    )
    node = Node(parameters, head=False, shutdown_at_exit=True, spawn_reaper=True)
    signal.sigwait([signal.SIGTERM, signal.SIGINT])
    node.kill_all_processes(check_alive=False, allow_graceful=True)


if __name__ == "__main__":
    _join()
