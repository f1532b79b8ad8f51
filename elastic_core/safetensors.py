"""Checkpoint directories, without reading weights or importing torch: what the headers of safetensors files tell, and
who may read the files."""

import json
import math
import os
from pathlib import Path
from typing import TypedDict

ONE_THREAD = 10_000_000
"""Parameters up to which a second thread costs training more in waiting than it brings in arithmetic, on a machine that
does anything else besides."""


class Tensor(TypedDict):
    """A tensor's number format, as safetensors writes it ("F32", "BF16"), and its shape."""

    dtype: str
    shape: list[int]


def tensors(model: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint directory by name; none where it holds no safetensors files."""
    found: dict[str, Tensor] = {}
    for file in sorted(model.glob("*.safetensors")):
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        found |= {name: tensor for name, tensor in header.items() if name != "__metadata__"}
    return found


def num_parameters(model: Path) -> int:
    """Numbers in the weights of a checkpoint directory."""
    return sum(math.prod(tensor["shape"]) for tensor in tensors(model).values())


def num_threads(model: Path) -> int:
    """Threads to train it with on a CPU: one for a small model, every core of this process otherwise."""
    return 1 if num_parameters(model) <= ONE_THREAD else len(os.sched_getaffinity(0))


def let_others_read(model: Path) -> None:
    """Give everything in a checkpoint directory the usual modes: safetensors writes files only their owner may read."""
    for path in model.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
