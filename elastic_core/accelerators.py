"""Which NVIDIA GPUs this process may use: those of the machine, or those that CUDA_VISIBLE_DEVICES names."""

from __future__ import annotations

import os
from pathlib import Path


def chosen_gpus() -> list[str] | None:
    """Indices or ids that CUDA_VISIBLE_DEVICES names; None when it is unset. As in CUDA, a wrong one ends the list."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    chosen: list[str] = []
    for name in (part.strip() for part in value.split(",")):
        if not name or name.startswith("-"):
            break
        chosen.append(name)
    return chosen


def is_chosen(index: str, uuid: str) -> bool:
    """Whether a GPU may be used, by its index or its id, which CUDA lets one abbreviate. Of parts of GPUs (MIG) it
    is not known: with them, all may be."""
    chosen = chosen_gpus()
    return chosen is None or any(name == index or name.startswith("MIG") or uuid.startswith(name) for name in chosen)


def count_gpus(installed: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """How many GPUs this process may use, without a look at them.

    Args:
        installed: the driver's list of GPUs.
    """
    count = len(list(installed.iterdir())) if installed.is_dir() else 0
    chosen = chosen_gpus()
    return count if chosen is None else min(count, len(chosen))
