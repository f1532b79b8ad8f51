"""What neither a registry nor a subclass of verl 0.9.1 can change. Each patch says why and for which versions."""

from functools import wraps
from typing import Any

import torch.distributed


def apply() -> None:
    """Apply every patch, once per process."""
    _patch_process_group_backend()


def _patch_process_group_backend() -> None:
    """verl 0.9.1, torch 2.11 to 2.13: verl asks for the backend "cpu:gloo,<device>:<backend>" in two functions that
    its workers import by name. On a CPU that reads "cpu:gloo,cpu:gloo", and torch refuses a repeated device."""
    original = torch.distributed.init_process_group

    @wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        original("cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

    torch.distributed.init_process_group = init_process_group
