"""Servers that a run talks to."""

from __future__ import annotations

import os
from pathlib import Path

from elastic_core.training.local_ray import RayCluster
from elastic_core.training.resources import InsufficientResources, Resources, check_nodes
from flows.doctor.finding import Finding
from flows.services import answers


def check_port(port: int, service: str, listening: bool, ours: bool) -> Finding:
    """Only `elastic up` needs the ports."""
    if not listening:
        return Finding(f"port {port}", "ok", f"free for {service}")
    if ours:
        return Finding(f"port {port}", "ok", f"{service} answers there")
    message = f"taken by something other than {service}: start with `elastic up --{service.lower()}-port N`"
    return Finding(f"port {port}", "warning", message)


def check_tracking(uri: str) -> Finding:
    """Whether MLflow's store can be reached: a server answers, or the database's directory can be written."""
    if uri.startswith("http"):
        if answers(f"{uri.rstrip('/')}/health", proxies=True):
            return Finding("mlflow", "ok", f"{uri} answers")
        message = (
            f"{uri} does not answer: start it with `elastic up`, or `unset MLFLOW_TRACKING_URI` for a local database"
        )
        return Finding("mlflow", "failure", message)
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
    if answers(f"{url.rstrip('/')}/health", proxies=True):
        return Finding("prefect", "ok", f"{url} answers")
    message = f"{url} does not answer: start it with `elastic up`, or `unset PREFECT_API_URL` to do without"
    return Finding("prefect", "failure", message)


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
        advice = (
            "add nodes with `ray start --address=HOST:6379`, or lower train.nodes or train.gpus_per_node with `--set`"
        )
        return Finding("ray", "failure", f"{error}: {advice}")
    gpus, cpus = sum(gpus for gpus, _ in nodes), sum(cpus for _, cpus in nodes)
    return Finding("ray", "ok", f"{dashboard} has {len(nodes)} nodes, {gpus} GPUs and {cpus} logical CPUs")


def check_engines(nodes: list[tuple[int, int]], engines: int, gpus: int) -> Finding:
    """Whether a sweep's engines fit on a running cluster: one that does not is waited for until its deadline.

    Args:
        nodes: GPUs and logical CPUs of each node.
        gpus: that each engine takes, on one node, beside one logical CPU.
    """
    fitting = sum(min(node_gpus // gpus, node_cpus) for node_gpus, node_cpus in nodes)
    if fitting >= engines:
        return Finding("engines", "ok", f"{engines} engines of {gpus} GPUs fit on the cluster")
    return Finding(
        "engines",
        "failure",
        f"{engines} engines of {gpus} GPUs are needed and {fitting} fit on the cluster: add nodes with "
        "`ray start --address=HOST:6379`, or lower engine.data_parallel_size with `--set`",
    )


def ray_nodes(cluster: RayCluster) -> list[tuple[int, int]] | None:
    """GPUs and logical CPUs of each node; None when the cluster does not answer."""
    from ray.util.state.exception import RayStateApiException

    try:
        return cluster.nodes()
    except (OSError, RuntimeError, RayStateApiException):
        return None


def listening(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
