"""How many threads a model keeps busy on a CPU."""

from __future__ import annotations

import math
import os
from pathlib import Path

from elastic_core.safetensors import tensors

ONE_THREAD = 10_000_000
"""Parameters up to which a second thread costs training more in waiting than it brings in arithmetic, on a machine that
does anything else besides."""


def num_threads(checkpoint: Path) -> int:
    """Threads to train a Hugging Face checkpoint with: one for a small model, every core of this process otherwise."""
    return 1 if num_parameters(checkpoint) <= ONE_THREAD else len(os.sched_getaffinity(0))


def num_parameters(checkpoint: Path) -> int:
    """Numbers in the weights of a checkpoint directory."""
    return sum(math.prod(tensor["shape"]) for tensor in tensors(checkpoint).values())
