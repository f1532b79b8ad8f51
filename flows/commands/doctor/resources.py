"""GPUs and servers that a run takes, against those that there are."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from elastic_core.sweep.grid import checkpoints
from elastic_core.system.accelerators import Gpu, installed_gpus
from elastic_core.system.network import answers
from elastic_core.training.requirements import InsufficientResources, Resources, check_nodes, placement
from flows.commands.doctor.machine import (
    GIB,
    Build,
    Finding,
    check_machine,
    installed_build,
    installed_versions,
    judged,
    require,
)
from flows.runtime.environment import runs_directory

if TYPE_CHECKING:
    from elastic_core.system.ray_cluster import RayCluster
    from flows.runtime.settings import Settings

_OLDEST_DRIVER = {12: 525, 13: 580}
"""By CUDA's major version: NVIDIA's oldest driver for all minor ones (release notes, "minor version compatibility")."""
_CUDA = ("cuda-toolkit", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
"""Distributions with the version of the lock's CUDA."""
_FREE_SHARE = 0.9  # Of a GPU's memory; with less, someone else uses it.
_MORE_NODES = "add nodes with `ray start --address=HOST:6379`"


class GpuDemand(NamedTuple):
    """GPUs that a stage takes on this machine, `gpus` for each 1 of the setting's value, and whether a Ray cluster can
    give them instead."""

    stage: Literal["warm-start", "train", "sweep", "serve"]
    setting: str
    value: int
    gpus: int = 1
    movable: bool = True

    @property
    def total(self) -> int:
        return self.value * self.gpus


def gpu_demands(settings: Settings) -> list[GpuDemand]:
    """What takes GPUs of this machine. On a cluster only fine-tuning does; models behind servers take none."""
    engine, train, sft = settings.engine, settings.train, settings.warm_start.sft
    demands = []
    if settings.base == "warm-start" and sft and sft.device == "gpu":
        demands.append(GpuDemand("warm-start", "warm_start.sft.gpus", sft.gpus, movable=False))
    if settings.ray.running is None:
        if train and train.device == "gpu":
            demands.append(GpuDemand("train", "train.gpus_per_node", train.gpus_per_node))
        if engine.num_gpus and (engines := engines_per_replica(settings)):
            gpus = engine.num_gpus * engines
            demands.append(GpuDemand("sweep", "engine.data_parallel_size", engine.data_parallel_size, gpus))
    return demands


def engines_per_replica(settings: Settings) -> int:
    """A pair of models has an engine for each, and a model behind a server none."""
    behind = settings.sweep.endpoints
    return max(len(set(checkpoints(model).values()).difference(behind)) for model in settings.sweep.models)


def cuda_version(installed: Mapping[str, str]) -> int | None:
    """Major version of the CUDA that the environment brings; None without one."""
    return next((int(installed[name].partition(".")[0]) for name in _CUDA if name in installed), None)


def require_machine(settings: Settings, stages: Collection[str] | None = None) -> None:
    """The checks before a flow starts, in well under a second, with the GPUs of its `stages` (None: all). Raises
    UserError, with a sentence for each reason, when this machine cannot run it."""
    demands = [demand for demand in gpu_demands(settings) if stages is None or demand.stage in stages]
    require(*find_gpus(settings, demands), *check_machine(runs_directory()))


def find_gpus(settings: Settings, demands: Sequence[GpuDemand]) -> list[Finding]:
    """`check_gpus` of this machine."""
    build, cuda = installed_build(), cuda_version(installed_versions())
    return check_gpus(build, installed_gpus(), demands, cuda, on_cluster=settings.ray.running is not None)


def check_gpus(
    build: Build, gpus: Sequence[Gpu], demands: Sequence[GpuDemand], cuda: int | None = None, on_cluster: bool = False
) -> list[Finding]:
    """Whether stages, one after the other, can run on the GPUs of this process; nothing where none needs one."""
    if not demands and (build == "cpu" or on_cluster):
        return []
    if build == "gpu":
        return [_with_cuda(gpus, demands, cuda)]
    wanted = ", ".join(f"{demand.setting} = {demand.value}" for demand in demands)
    here = "" if gpus else " on a machine with an NVIDIA GPU"
    problem = f"{wanted} takes GPUs, and vLLM's CPU build is installed: run `make install ENGINE=gpu`{here}"
    return [Finding("accelerator", "failure", f"{problem}, or try the preset on a CPU with `elastic rehearse`")]


def _with_cuda(gpus: Sequence[Gpu], demands: Sequence[GpuDemand], cuda: int | None) -> Finding:
    failure = partial(Finding, "accelerator", "failure")
    if not gpus:
        return failure(
            "the CUDA build of vLLM is installed and nvidia-smi shows no GPU that CUDA_VISIBLE_DEVICES allows: "
            "install the NVIDIA driver, or run `make install ENGINE=cpu`"
        )
    driver = gpus[0].driver
    found = "; ".join(f"{gpu.name}, {gpu.free / GIB:.1f} of {gpu.total / GIB:.1f} GiB free" for gpu in gpus)
    found = f"{found}; driver {driver}"
    oldest = _OLDEST_DRIVER.get(cuda or 0, 0)
    if int(driver.partition(".")[0]) < oldest:
        return failure(f"CUDA {cuda} needs NVIDIA's driver {oldest} or newer: update it; found {found}")
    needed = max((demand.total for demand in demands), default=1)
    if len(gpus) < needed:
        advice = _advice([demand for demand in demands if demand.total > len(gpus)], len(gpus))
        return failure(f"{needed} GPUs are needed and this machine has {found}: {advice}")
    if any(gpu.free < _FREE_SHARE * gpu.total for gpu in gpus):
        return Finding("accelerator", "warning", f"{found}: `nvidia-smi` shows the programs to end")
    return Finding("accelerator", "ok", found)


def _advice(unmet: Sequence[GpuDemand], gpus: int) -> str:
    """Advice that makes a run fit on `gpus` GPUs."""
    larger = "on a machine with more"
    if all(demand.movable for demand in unmet):
        larger = "on a cluster with `--set ray.address=HOST:6379 --set ray.dashboard=http://HOST:8265`"
    if any(demand.gpus > gpus for demand in unmet):
        return f"run {larger}"
    fewer = " ".join(f"--set {demand.setting}={gpus // demand.gpus}" for demand in unmet)
    return f"run with `{fewer}`, or {larger}"


def check_services(settings: Settings, runs: Path) -> list[Finding]:
    tracking = settings.mlflow.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    findings = [
        check_prefect(os.environ.get("PREFECT_API_URL")),
        check_tracking(tracking or f"sqlite:///{runs / 'mlflow.db'}"),
    ]
    cluster, train, engine = settings.ray.running, settings.train, settings.engine
    if cluster is not None:
        nodes = ray_nodes(cluster)
        needed = placement(train.nodes, train.gpus_per_node, train.nodes) if train else None
        findings.append(check_ray(cluster.dashboard, nodes, needed))
        if nodes is not None and engine.num_gpus:
            engines = engine.data_parallel_size * engines_per_replica(settings)
            findings.append(check_engines(nodes, engines, engine.num_gpus))
    return findings


def check_tracking(uri: str) -> Finding:
    """Whether MLflow's store can be reached: a server answers, or the database's directory can be written."""
    if uri.startswith("http"):
        return _check_server("mlflow", uri, "MLFLOW_TRACKING_URI", "for a local database")
    if uri.startswith("sqlite:///"):
        directory = Path(uri.removeprefix("sqlite:///")).resolve().parent
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        if not os.access(existing, os.W_OK):
            return Finding("mlflow", "failure", f"{existing} cannot be written: set ELASTIC_RUNS to another directory")
    return Finding("mlflow", "ok", re.sub(r"://[^/]*@", "://***@", uri))  # A password may be before the host.


def check_prefect(url: str | None) -> Finding:
    """Check Prefect's server; without one every run starts one for itself."""
    if url is None:
        return Finding("prefect", "ok", "every run starts a server of its own")
    return _check_server("prefect", url, "PREFECT_API_URL", "to do without")


def _check_server(check: str, url: str, variable: str, without: str) -> Finding:
    problem = f"{url} does not answer: start it with `elastic up`, or `unset {variable}` {without}"
    return judged(check, answers(f"{url.rstrip('/')}/health"), f"{url} answers", problem)


def check_ray(dashboard: str, nodes: list[tuple[int, int]] | None, needed: Resources | None) -> Finding:
    """Whether a running cluster answers (`nodes` of `ray_nodes`), and has what training reserves, if there is one."""
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
    """Whether a sweep's engines fit on a cluster (`nodes` of `ray_nodes`): for one that does not, a sweep waits until
    its deadline. Each takes `gpus` and one logical CPU on one node."""
    fitting = sum(min(node_gpus // gpus, node_cpus) for node_gpus, node_cpus in nodes)
    needed = f"{engines} engines of {gpus} GPUs"
    problem = f"{needed} are needed and {fitting} fit on the cluster: {_MORE_NODES}, or lower engine.data_parallel_size"
    return judged("engines", fitting >= engines, f"{needed} fit on the cluster", f"{problem} with `--set`")


def ray_nodes(cluster: RayCluster) -> list[tuple[int, int]] | None:
    """GPUs and logical CPUs of each node; None when the cluster does not answer."""
    try:
        return cluster.nodes()
    except (OSError, RuntimeError):
        return None
