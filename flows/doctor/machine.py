"""Processor, accelerators, memory and disk. Each `check_*` judges values it is given; the rest looks them up."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from elastic_core.accelerators import is_chosen
from flows.doctor.finding import GIB, Finding

NEEDED_MEMORY_BYTES = 10 * GIB
"""Ray, verl's trainer and vLLM side by side, with the miniature model."""
NEEDED_DISK_BYTES = 4 * GIB
"""Checkpoints, tables and databases of the embedded preset, with room to run it again."""
NEEDED_SHARED_MEMORY_BYTES = 2 * GIB
"""Ray's object store lives in /dev/shm, or on the disk if that is too small."""
_FREE_SHARE = 0.9
"""Of a GPU's memory; with less, someone else uses it."""
_MIB = 2**20


class Gpu(NamedTuple):
    """An NVIDIA GPU; memory in bytes."""

    name: str
    total: int
    free: int
    driver: str


class GpuDemand(NamedTuple):
    """GPUs that a run takes on this machine."""

    setting: str
    """What `value` is the value of."""
    value: int
    gpus: int = 1
    """For each 1 of `value`."""
    movable: bool = True
    """Whether a Ray cluster can give them instead."""

    @property
    def total(self) -> int:
        return self.value * self.gpus


def check_processor(flags: frozenset[str]) -> Finding:
    """The CPU build of vLLM is compiled for AVX2."""
    if "avx512f" in flags:
        return Finding("processor", "ok", "x86-64 with AVX-512")
    if "avx2" in flags:
        return Finding("processor", "ok", "x86-64 with AVX2")
    return Finding(
        "processor",
        "failure",
        "vLLM on a CPU needs the AVX2 instructions and this processor has none: use a machine from 2014 or later",
    )


def check_gpus(gpus: list[Gpu], demands: Sequence[GpuDemand] = ()) -> Finding:
    """Asked where the CUDA build of vLLM is installed.

    Args:
        demands: of a run's stages, which come one after the other; none is one GPU.
    """
    if not gpus:
        return Finding(
            "accelerator",
            "failure",
            "the CUDA build of vLLM is installed and nvidia-smi shows no GPU that CUDA_VISIBLE_DEVICES allows: "
            "install the NVIDIA driver, or use the CPU build with `make install ENGINE=cpu`",
        )
    found = "; ".join(f"{gpu.name}, {gpu.free / GIB:.1f} of {gpu.total / GIB:.1f} GiB free" for gpu in gpus)
    found = f"{found}; driver {gpus[0].driver}"
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


def check_cores(cores: int) -> Finding:
    if cores >= 2:
        return Finding("cores", "ok", f"{cores} cores")
    return Finding("cores", "warning", "one core: everything runs, slowly; two or more are better")


def check_memory(total: int, available: int, needed: int = NEEDED_MEMORY_BYTES) -> Finding:
    """Too little in all is a failure; enough, but in use by others now, a warning. Bytes."""
    wanted = f"{needed / GIB:.0f} GiB of memory are needed"
    if total < needed:
        message = f"{wanted} and this machine or container has {total / GIB:.1f}: use a larger one, or raise its limit"
        return Finding("memory", "failure", message)
    if available < needed:
        message = f"{wanted} and {available / GIB:.1f} of {total / GIB:.1f} are free: close other programs"
        return Finding("memory", "warning", message)
    return Finding("memory", "ok", f"{available / GIB:.1f} of {total / GIB:.1f} GiB free")


def check_disk(free: int, runs: Path, needed: int = NEEDED_DISK_BYTES) -> Finding:
    """Room where results go. Bytes."""
    if free >= needed:
        return Finding("disk", "ok", f"{free / GIB:.0f} GiB free for {runs}")
    return Finding(
        "disk",
        "failure",
        f"{needed / GIB:.0f} GiB of disk are needed and {runs} has {free / GIB:.1f}: "
        "free some, or set ELASTIC_RUNS to a directory on another disk",
    )


def check_shared_memory(size: int) -> Finding:
    """Containers get 64 MiB unless told otherwise."""
    if size >= NEEDED_SHARED_MEMORY_BYTES:
        return Finding("shared memory", "ok", f"{size / GIB:.1f} GiB in /dev/shm")
    return Finding(
        "shared memory",
        "warning",
        f"/dev/shm has {size / GIB:.2f} GiB, so Ray keeps objects on the disk, slowly: "
        f"give the container --shm-size={NEEDED_SHARED_MEMORY_BYTES // GIB}g",
    )


def cgroup_memory_limit(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int | None:
    """Bytes this process's control groups allow, of versions 1 and 2; None without a limit."""
    limits = []
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        # A limit binds everything below it. Inside a container the path may not exist and the root is the group's own.
        group = base / path.lstrip("/")
        for directory in (group, *group.parents):
            file = directory / name
            if directory.is_relative_to(base) and file.exists() and (text := file.read_text().strip()) != "max":
                limits.append(int(text))
    return min(limits, default=None)


def processor_flags() -> frozenset[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def installed_gpus() -> list[Gpu]:
    """The NVIDIA GPUs that this process may use, as nvidia-smi lists them."""
    try:
        listed = subprocess.run(
            [
                "nvidia-smi",
                "--query-gpu=index,uuid,name,memory.total,memory.free,driver_version",
                "--format=csv,noheader,nounits",
            ],
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(listed.stdout) if listed.returncode == 0 else []


def parse_gpus(listed: str) -> list[Gpu]:
    """nvidia-smi's lines of index, id, name, total and free memory in MiB, and driver; without those that
    CUDA_VISIBLE_DEVICES leaves out."""
    rows = [line.split(", ") for line in listed.splitlines() if line.strip()]
    return [
        Gpu(name, int(total) * _MIB, int(free) * _MIB, driver)
        for index, uuid, name, total, free, driver in rows
        if is_chosen(index, uuid)
    ]
