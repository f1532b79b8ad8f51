"""A Ray cluster of two nodes with a network each: training's two ranks and a sweep's four engines lie on both. A rank,
an engine, a node and the head are killed; the same command afterwards ends as if nothing had happened.

The nodes are network namespaces: neither reaches the other's loopback, and nothing but two addresses joins them. They
share files, as in docs/cluster.md.
"""

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import polars as pl
import psutil
import pytest

from elastic_core.system.processes import kill_tree
from tests.elastic_command import ELASTIC
from tests.exactness import assert_same_work, broken_rules
from tests.processes import descendants

NEEDED = shutil.which("ip") is not None and os.geteuid() == 0
pytestmark = [
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not NEEDED, reason="needs root and iproute2, for two networks"),
]

HEAD, OTHER = "10.77.0.1", "10.77.0.2"
STEPS = 6
COMMAND = (
    *("run", "pipeline", "--preset", "smoke", "--set", f"train.steps={STEPS}", "--set", "train.nodes=2"),
    *("--set", "engine.data_parallel_size=4", "--set", "sweep.samples=200"),
    *("--set", 'sweep.strategies=["separate","budget_forcing"]'),
    *("--set", f"ray.address={HEAD}:6379", "--set", "ray.dashboard=http://127.0.0.1:8265"),
)


class Cluster:
    """Started as infra/ray-cluster.yaml does, with a token."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names = {HEAD: f"elastic{os.getpid()}h", OTHER: f"elastic{os.getpid()}o"}
        self._nodes: dict[str, psutil.Popen] = {}
        token = directory / "token"
        token.write_text(secrets.token_hex(32))
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GLOO_", "NCCL_", "RAY_"))},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def connect(self) -> None:
        """Two networks that reach each other."""
        for name in self._names.values():
            _ip("netns", "add", name)
        ends = [f"er{os.getpid() % 10**6}{end}" for end in "ab"]
        _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for (address, name), end in zip(self._names.items(), ends, strict=True):
            _ip("link", "set", end, "netns", name)
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            _ip("-n", name, "link", "set", end, "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def popen(self, *command: str, log: Path, address: str = HEAD, **more: str) -> psutil.Popen:
        with log.open("ab") as output:
            return psutil.Popen(
                ["ip", "netns", "exec", self._names[address], *command],
                env=self.environment | more,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start(self) -> None:
        """What of both is not up; it returns when both are."""
        for address in (HEAD, OTHER):
            node = self._nodes.get(address)
            if node is not None and node.poll() is None:
                continue
            where = ("--head", "--port=6379", "--dashboard-host=127.0.0.1")
            if address == OTHER:
                where = (f"--address={HEAD}:6379",)
            # Paths of sockets below it have to be short.
            files = self._directory / ("h" if address == HEAD else "o")
            shutil.rmtree(files, ignore_errors=True)
            self._nodes[address] = self.popen(
                *("ray", "start", "--block", f"--node-ip-address={address}", *where, "--disable-usage-stats"),
                *("--num-cpus=32", "--num-gpus=1", "--object-store-memory=1000000000", f"--temp-dir={files}"),
                log=self._directory / f"{address}.log",
                address=address,
            )
            self._until(lambda: "Ray runtime started" in (self._directory / f"{address}.log").read_text())  # noqa: B023
        self._until(lambda: self._alive() == 2)

    def stop(self, address: str) -> None:
        """Kill a node, and what runs on it."""
        node = self._nodes.pop(address)
        kill_tree(node.pid)
        node.wait()

    def close(self) -> None:
        for address in list(self._nodes):
            self.stop(address)
        for name in self._names.values():
            _ip("netns", "delete", name)

    def find(self, mark: str, address: str = OTHER) -> psutil.Process | None:
        """A process on a node with `mark` in its command line."""
        return next(iter(descendants(self._nodes[address].pid, mark)), None)

    def _alive(self) -> int:
        said = subprocess.run(
            ["ip", "netns", "exec", self._names[HEAD], "ray", "status", f"--address={HEAD}:6379"],
            env=self.environment, capture_output=True, text=True, check=False,
        ).stdout  # fmt: skip
        return said.partition("Pending:")[0].count(" node_")

    def _until(self, condition: Callable[[], bool], seconds: float = 600) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, [log.read_text()[-3000:] for log in self._directory.glob("*.log")]
            time.sleep(0.5)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    directory = Path("/tmp") / f"er-{os.getpid()}"
    directory.mkdir(mode=0o700)
    cluster = Cluster(directory)
    try:
        cluster.connect()
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(directory)


def test_each_part_of_two_nodes_may_die_once(cluster: Cluster, tmp_path: Path) -> None:
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    _end(_start(cluster, calm), calm)
    assert _ranks(calm) == {HEAD, OTHER}, "training's ranks lie on both nodes"
    process = _start(cluster, stormy)
    for what, reached in (
        ("ray::WorkerDict", lambda: list(stormy.glob("smoke/train/*/checkpoints/global_step_2"))),
        ("ray::EngineActor", lambda: list(stormy.glob("smoke/tables/*/*.parquet"))),
        ("node", lambda: cluster.find("ray::EngineActor")),
        ("head", lambda: cluster.find("ray::EngineActor")),
    ):
        began = time.monotonic()
        while not (reached() and (what in ("node", "head") or cluster.find(what))):
            assert time.monotonic() < began + 900, (stormy / "log").read_text()[-6000:]
            if process.poll() is not None:
                assert process.returncode != 0, f"the pipeline was finished before {what} was killed"
                process = _start(cluster, stormy)
            time.sleep(0.1)
        print(f"kill {what} after {_num_rows(stormy)} rows", flush=True)
        if what == "head":
            cluster.stop(OTHER)
            cluster.stop(HEAD)
        elif what == "node":
            cluster.stop(OTHER)
        else:
            victim = cluster.find(what)
            assert victim is not None
            victim.kill()
        cluster.start()
    with suppress(subprocess.TimeoutExpired):
        process.wait(1800)
    if process.returncode != 0:
        _end(_start(cluster, stormy), stormy)
    undisturbed, rows = (pl.read_parquet(list(runs.glob("smoke/tables/*/*.parquet"))) for runs in (calm, stormy))
    assert broken_rules(rows) == {}
    assert_same_work(rows, undisturbed)


def _start(cluster: Cluster, runs: Path) -> psutil.Popen:
    runs.mkdir(exist_ok=True)
    return cluster.popen(ELASTIC, *COMMAND, log=runs / "log", ELASTIC_RUNS=str(runs))


def _end(process: psutil.Popen, runs: Path) -> None:
    assert process.wait(1800) == 0, (runs / "log").read_text()[-6000:]


def _ranks(runs: Path) -> set[str]:
    """Addresses of the nodes that training's ranks were on."""
    text = "".join(file.read_text() for file in runs.glob("smoke/train/*/train*.log"))
    other = {OTHER} if f"ip={OTHER}" in text else set()
    return other | ({HEAD} if "(WorkerDict pid=" in text else set())


def _num_rows(runs: Path) -> int:
    files = list(runs.glob("smoke/tables/*/*.parquet"))
    return int(pl.scan_parquet(files).select(pl.len()).collect().item()) if files else 0


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
