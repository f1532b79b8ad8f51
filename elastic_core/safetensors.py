"""Checkpoint directories, without reading weights or importing torch: what the headers of safetensors files tell, and
who may read the files."""

import json
from pathlib import Path
from typing import TypedDict


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


def let_others_read(model: Path) -> None:
    """Give everything in a checkpoint directory the usual modes: safetensors writes files only their owner may read."""
    for path in model.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
