"""The NVIDIA GPUs that this process may use: those of the machine, or those that CUDA_VISIBLE_DEVICES names."""

from __future__ import annotations

import os
import subprocess
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple


def chosen_gpus() -> list[str] | None:
    """Indices or ids that CUDA_VISIBLE_DEVICES names; None when it is unset. A wrong one ends the list, as in CUDA."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    names = (part.strip() for part in value.split(","))
    return list(takewhile(lambda name: name and not name.startswith("-"), names))


def count_gpus(installed: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """How many GPUs this process may use, by the driver's list of them (`installed`)."""
    count = len(list(installed.iterdir())) if installed.is_dir() else 0
    chosen = chosen_gpus()
    return count if chosen is None else min(count, len(chosen))


class Gpu(NamedTuple):
    """An NVIDIA GPU; memory in bytes."""

    name: str
    total: int
    free: int
    driver: str


def installed_gpus() -> list[Gpu]:
    query = "--query-gpu=index,uuid,name,memory.total,memory.free,driver_version"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(listed.stdout) if listed.returncode == 0 else []


def parse_gpus(listed: str) -> list[Gpu]:
    """nvidia-smi's lines of index, id, name, total and free memory in MiB, and driver, of the GPUs that
    CUDA_VISIBLE_DEVICES names by index or beginning of the id. Where it names parts of GPUs (MIG), all count."""
    found, chosen = [], chosen_gpus()
    for line in filter(str.strip, listed.splitlines()):
        index, uuid, name, total, free, driver = line.split(", ")
        if chosen is None or any(c == index or c.startswith("MIG") or uuid.startswith(c) for c in chosen):
            found.append(Gpu(name, int(total) << 20, int(free) << 20, driver))
    return found
