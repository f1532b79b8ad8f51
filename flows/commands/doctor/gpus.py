"""The GPUs that a run takes on this machine, against those that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from elastic_core.sweep.grid import checkpoints
from elastic_core.system.accelerators import Gpu
from flows.commands.doctor.finding import GIB, Finding
from flows.commands.doctor.machine import Build

if TYPE_CHECKING:
    from flows.runtime.settings import Settings

_OLDEST_DRIVER = {12: 525, 13: 580}
"""By CUDA's major version: the oldest branch of NVIDIA's driver that runs all of its minor ones (CUDA's release notes,
"minor version compatibility")."""
_CUDA = ("cuda-toolkit", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
"""Distributions that have the version of CUDA which the lock brings."""
_FREE_SHARE = 0.9
"""Of a GPU's memory; with less, someone else uses it."""


class GpuDemand(NamedTuple):
    """GPUs that a run takes on this machine: `gpus` for each 1 of the setting's value.

    Attributes:
        stage: that takes them.
        movable: whether a Ray cluster can give them instead.
    """

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


def check_gpus(
    build: Build,
    gpus: Sequence[Gpu],
    demands: Sequence[GpuDemand],
    cuda: int | None = None,
    *,
    on_cluster: bool = False,
) -> list[Finding]:
    """Nothing where nobody asks for a GPU of this machine.

    Args:
        gpus: that this process may use.
        demands: of a run's stages, which come one after the other.
        cuda: as of `cuda_version`.
    """
    if build == "cpu":
        return [_without_cuda(gpus, demands)] if demands else []
    return [] if on_cluster and not demands else [_with_cuda(gpus, demands, cuda)]


def _without_cuda(gpus: Sequence[Gpu], demands: Sequence[GpuDemand]) -> Finding:
    """Settings that want GPUs, and an environment that has no use for any."""
    wanted = ", ".join(f"{demand.setting} = {demand.value}" for demand in demands)
    here = "" if gpus else " on a machine with an NVIDIA GPU, as this one shows none"
    problem = f"{wanted} takes GPUs and vLLM's CPU build is installed: run `make install ENGINE=gpu`{here}"
    return Finding("accelerator", "failure", f"{problem}, or try the preset on a CPU with `elastic rehearse`")


def _with_cuda(gpus: Sequence[Gpu], demands: Sequence[GpuDemand], cuda: int | None) -> Finding:
    if not gpus:
        problem = (
            "the CUDA build of vLLM is installed and nvidia-smi shows no GPU that CUDA_VISIBLE_DEVICES allows: "
            "install the NVIDIA driver, or use the CPU build with `make install ENGINE=cpu`"
        )
        return Finding("accelerator", "failure", problem)
    found = "; ".join(f"{gpu.name}, {gpu.free / GIB:.1f} of {gpu.total / GIB:.1f} GiB free" for gpu in gpus)
    driver = gpus[0].driver
    found = f"{found}; driver {driver}"
    oldest = _OLDEST_DRIVER.get(cuda or 0, 0)
    if int(driver.partition(".")[0]) < oldest:
        problem = f"CUDA {cuda} is installed and needs NVIDIA's driver {oldest} or newer: update it; found {found}"
        return Finding("accelerator", "failure", problem)
    needed = max((demand.total for demand in demands), default=1)
    if len(gpus) < needed:
        advice = _advice([demand for demand in demands if demand.total > len(gpus)], len(gpus))
        return Finding("accelerator", "failure", f"{needed} GPUs are needed and this machine has {found}: {advice}")
    if any(gpu.free < _FREE_SHARE * gpu.total for gpu in gpus):
        return Finding("accelerator", "warning", f"{found}: `nvidia-smi` shows the programs to end")
    return Finding("accelerator", "ok", found)


def _advice(unmet: Sequence[GpuDemand], gpus: int) -> str:
    """What makes a run fit where there are only so many GPUs."""
    larger = "on a machine with more"
    if all(demand.movable for demand in unmet):
        larger = "on a cluster with `--set ray.address=HOST:6379 --set ray.dashboard=http://HOST:8265`"
    if any(demand.gpus > gpus for demand in unmet):
        return f"run {larger}"
    fewer = " ".join(f"--set {demand.setting}={gpus // demand.gpus}" for demand in unmet)
    return f"run with `{fewer}`, or {larger}"
