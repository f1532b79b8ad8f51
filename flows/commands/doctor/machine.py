"""This machine and its installed packages, against what this package needs."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

import psutil
from packaging.utils import canonicalize_name

from elastic_core.errors import UserError

GIB = 2**30
LOCKS = Path(__file__).resolve().parents[3] / "infra" / "requirements"
_NOT_LOCKED = {"elastic-reasoning", "pip"}  # In every environment, and in no lock.
Build = Literal["cpu", "gpu"]
Level = Literal["ok", "warning", "failure"]
NEEDED_MEMORY_BYTES = 10 * GIB  # Ray, verl's trainer and vLLM side by side, with the miniature model.
NEEDED_DISK_BYTES = 4 * GIB  # Checkpoints, tables and databases of the embedded preset, with room to run it again.
NEEDED_SHARED_MEMORY_BYTES = 2 * GIB  # Ray's object store lives in /dev/shm, or on the disk if that is too small.


class Finding(NamedTuple):
    check: str
    level: Level
    message: str  # One sentence; unless all is well it ends with what to do.


def judged(check: str, well: bool, found: str, problem: str, level: Level = "failure") -> Finding:
    return Finding(check, "ok", found) if well else Finding(check, level, problem)


def require(*findings: Finding) -> None:
    """Raise UserError with the sentence of each failure, if there is one."""
    if failures := [finding.message for finding in findings if finding.level == "failure"]:
        raise UserError("; ".join(failures))


def check_machine(runs: Path, memory: int = NEEDED_MEMORY_BYTES, disk: int = NEEDED_DISK_BYTES) -> list[Finding]:
    """Check processor, memory and disk, in milliseconds; `memory` and `disk` are the bytes needed."""
    there = psutil.virtual_memory()
    total = min(there.total, cgroup_memory_limit() or there.total)
    existing = next(path for path in (runs, *runs.resolve().parents) if path.exists())
    return [
        *([check_processor(processor_flags())] if installed_build() == "cpu" else []),
        check_memory(total, there.available, memory),
        check_disk(shutil.disk_usage(existing).free, runs, disk),
    ]


def check_processor(flags: frozenset[str]) -> Finding:
    """The CPU build of vLLM is compiled for AVX2."""
    found = f"x86-64 with {'AVX-512' if 'avx512f' in flags else 'AVX2'}"
    problem = "vLLM on a CPU needs AVX2, which this processor lacks: use a machine from 2014 or later"
    return judged("processor", "avx2" in flags, found, problem)


def check_bfloat16(float32: Sequence[str], flags: frozenset[str]) -> Finding:
    """Whether a CPU may compute in bfloat16, where the settings ask for it; `float32` are those that undo it. Without
    AVX-512 torch multiplies bfloat16 matrices 76 times as slowly as in float32 (2.13, AMD EPYC 7003)."""
    problem = f"without AVX-512 bfloat16 is dozens of times as slow as float32: {' '.join(float32)}"
    return judged("bfloat16", "avx512bw" in flags, "bfloat16 by AVX-512", problem, "warning")


def check_cores(cores: int) -> Finding:
    return judged("cores", cores >= 2, f"{cores} cores", "only one core: use two or more for speed", "warning")


def check_memory(total: int, available: int, needed: int = NEEDED_MEMORY_BYTES) -> Finding:
    """Too little in all is a failure; enough, but in use, a warning. Bytes."""
    wanted, free = f"{needed / GIB:.0f} GiB of memory are needed", f"{available / GIB:.1f} of {total / GIB:.1f}"
    if total < needed:
        problem = f"{wanted}, this machine or container has {total / GIB:.1f}: use a larger one, or raise its limit"
        return Finding("memory", "failure", problem)
    problem = f"{wanted}, {free} are free: close other programs"
    return judged("memory", available >= needed, f"{free} GiB free", problem, "warning")


def check_disk(free: int, runs: Path, needed: int = NEEDED_DISK_BYTES) -> Finding:
    """Room where results go. Bytes."""
    problem = f"{needed / GIB:.0f} GiB of disk are needed, {runs} has {free / GIB:.1f}: free some, or set ELASTIC_RUNS"
    return judged("disk", free >= needed, f"{free / GIB:.0f} GiB free for {runs}", problem)


def check_closed(runs: Path) -> Finding:
    """Whether other users can read results: a directory that was there before keeps its mode."""
    opened = runs.exists() and runs.stat().st_mode & 0o007
    problem = f"other users of this machine can enter {runs}: chmod o= {runs}, unless they are meant to"
    return judged("runs", not opened, f"{runs} is closed to other users", problem, "warning")


def check_shared_memory(size: int) -> Finding:
    """Check /dev/shm, of which containers have 64 MiB by default."""
    needed = NEEDED_SHARED_MEMORY_BYTES
    problem = f"/dev/shm has {size / GIB:.2f} GiB: give the container --shm-size={needed // GIB}g, or Ray uses the disk"
    return judged("shared memory", size >= needed, f"{size / GIB:.1f} GiB in /dev/shm", problem, "warning")


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
        # A limit binds everything below it. In a container the path may not exist, and the root belongs to the group.
        group = base / path.lstrip("/")
        for directory in (group, *group.parents):
            file = directory / name
            if directory.is_relative_to(base) and file.exists() and (text := file.read_text().strip()) != "max":
                limits.append(int(text))
    return min(limits, default=None)


def processor_flags() -> frozenset[str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return frozenset(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


def check_python(version: tuple[int, ...]) -> Finding:
    found = ".".join(map(str, version))
    problem = f"Python 3.11 is needed, this is {found}: install it, then run `make install`"
    return judged("python", version == (3, 11), f"Python {found}", problem)


def check_compiler(found: Mapping[str, str | None]) -> Finding:
    """torch and Triton compile kernels at run time. `found` is what `compiler_files` returns."""
    missing = [package for package, file in found.items() if file is None]
    problem = f"kernels are compiled at run time: run `sudo apt-get install {' '.join(missing)}`"
    return judged("compiler", not missing, ", ".join(filter(None, found.values())), problem)


def check_lock(lock: str, installed: Mapping[str, str]) -> Finding:
    """Check that the environment holds the packages of the lock, and no others."""
    pins = dict(line.split("==") for line in lock.splitlines() if "==" in line and not line.startswith("#"))
    different = [name for name, version in pins.items() if _public(installed.get(name, "")) != version]
    more = [name for name in installed if name not in pins and name not in _NOT_LOCKED]
    problem = (
        f"{len(different)} packages differ from the lock and {len(more)} are not in it "
        f"({', '.join([*different, *more][:5])}): run `make install`"
    )
    return judged("environment", not different and not more, f"{len(pins)} packages as locked", problem, "warning")


def check_sandbox(problem: str | None) -> Finding:
    """Only benchmarks of programs need it, and they refuse to start without."""
    return judged("sandbox", problem is None, "bubblewrap can isolate programs", f"{problem}", "warning")


def installed_build() -> Build:
    """Which lock the environment was made from: the two hold different distributions of vLLM."""
    try:
        metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return "cpu"
    return "gpu"


def installed_versions() -> dict[str, str]:
    return {str(canonicalize_name(each.metadata["Name"])): each.version for each in metadata.distributions()}


def compiler_files(build: Build, include: str | None = None) -> dict[str, str | None]:
    """What compiling takes, by the package it comes in; None is missing. Python's headers are in `include`."""
    files = {"gcc": shutil.which("cc") or shutil.which("gcc")}
    if build == "gpu":
        # torch calls g++ by name; Triton compiles a module for Python.
        header = Path(include or sysconfig.get_paths()["include"]) / "Python.h"
        files |= {"g++": shutil.which("g++"), "python3.11-dev": str(header) if header.exists() else None}
    return files


def _public(version: str) -> str:
    return version.partition("+")[0]
