"""Servers that a run talks to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_core.training.requirements import InsufficientResources, Resources, check_nodes, placement
from flows.commands.doctor.finding import Finding, judged
from flows.commands.doctor.gpus import engines_per_replica
from flows.commands.services import answers

if TYPE_CHECKING:
    from elastic_core.system.ray_cluster import RayCluster
    from flows.runtime.settings import Settings

_MORE_NODES = "add nodes with `ray start --address=HOST:6379`"


def check_services(settings: Settings, runs: Path) -> list[Finding]:
    tracking = settings.mlflow.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    return [
        check_port(4200, "Prefect", _listens(4200), answers("http://127.0.0.1:4200/api/health")),
        check_port(5000, "MLflow", _listens(5000), answers("http://127.0.0.1:5000/health")),
        check_prefect(os.environ.get("PREFECT_API_URL")),
        check_tracking(tracking or f"sqlite:///{runs / 'mlflow.db'}"),
        *_check_cluster(settings),
    ]


def _check_cluster(settings: Settings) -> list[Finding]:
    cluster, train, engine = settings.ray.running, settings.train, settings.engine
    if cluster is None:
        return []
    nodes = ray_nodes(cluster)
    needed = placement(train.nodes, train.gpus_per_node, train.nodes) if train else None
    findings = [check_ray(cluster.dashboard, nodes, needed)]
    if nodes is not None and engine.num_gpus:
        engines = engine.data_parallel_size * engines_per_replica(settings)
        findings.append(check_engines(nodes, engines, engine.num_gpus))
    return findings


def check_port(port: int, service: str, listening: bool, ours: bool) -> Finding:
    """Only `elastic up` needs the ports."""
    problem = f"taken by something other than {service}: start with `elastic up --{service.lower()}-port N`"
    found = f"{service} answers there" if listening else f"free for {service}"
    return judged(f"port {port}", ours or not listening, found, problem, "warning")


def check_tracking(uri: str) -> Finding:
    """Whether MLflow's store can be reached: a server answers, or the database's directory can be written."""
    if uri.startswith("http"):
        return _check_server("mlflow", uri, "MLFLOW_TRACKING_URI", "for a local database")
    if uri.startswith("sqlite:///"):
        directory = Path(uri.removeprefix("sqlite:///")).resolve().parent
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        if not os.access(existing, os.W_OK):
            return Finding("mlflow", "failure", f"{existing} cannot be written: set ELASTIC_RUNS to another directory")
    return Finding("mlflow", "ok", uri)


def check_prefect(url: str | None) -> Finding:
    """Without a server every run starts one for itself."""
    if url is None:
        return Finding("prefect", "ok", "every run starts a server of its own")
    return _check_server("prefect", url, "PREFECT_API_URL", "to do without")


def _check_server(check: str, url: str, variable: str, without: str) -> Finding:
    problem = f"{url} does not answer: start it with `elastic up`, or `unset {variable}` {without}"
    there = answers(f"{url.rstrip('/')}/health", proxies=True)
    return judged(check, there, f"{url} answers", problem)


def check_ray(dashboard: str, nodes: list[tuple[int, int]] | None, needed: Resources | None) -> Finding:
    """Whether a running cluster answers, and training fits on it.

    Args:
        nodes: GPUs and logical CPUs of each node; None when the cluster does not answer.
        needed: what training reserves; None where there is no training.
    """
    if nodes is None:
        advice = "start it with `ray start --head`, or leave ray.address and ray.dashboard out to use this machine"
        return Finding("ray", "failure", f"{dashboard} does not answer: {advice}")
    try:
        if needed:
            check_nodes(nodes, needed)
    except InsufficientResources as error:
        advice = f"{_MORE_NODES}, or lower train.nodes or train.gpus_per_node with `--set`"
        return Finding("ray", "failure", f"{error}: {advice}")
    gpus, cpus = map(sum, zip(*nodes, strict=True))
    return Finding("ray", "ok", f"{dashboard} has {len(nodes)} nodes, {gpus} GPUs and {cpus} logical CPUs")


def check_engines(nodes: list[tuple[int, int]], engines: int, gpus: int) -> Finding:
    """Whether a sweep's engines fit on a running cluster: one that does not is waited for until its deadline.

    Args:
        nodes: GPUs and logical CPUs of each node.
        gpus: that each engine takes, on one node, beside one logical CPU.
    """
    fitting = sum(min(node_gpus // gpus, node_cpus) for node_gpus, node_cpus in nodes)
    needed = f"{engines} engines of {gpus} GPUs"
    problem = f"{needed} are needed and {fitting} fit on the cluster: {_MORE_NODES}, or lower engine.data_parallel_size"
    return judged("engines", fitting >= engines, f"{needed} fit on the cluster", f"{problem} with `--set`")


def ray_nodes(cluster: RayCluster) -> list[tuple[int, int]] | None:
    """GPUs and logical CPUs of each node; None when the cluster does not answer."""
    from ray.util.state.exception import RayStateApiException

    try:
        return cluster.nodes()
    except (OSError, RuntimeError, RayStateApiException):
        return None


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
