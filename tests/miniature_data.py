"""The miniature's data sets, built without a flow."""

from pathlib import Path

from elastic_core.data.build import DataBuild, build
from elastic_core.data.problems import Manifest
from elastic_core.data.registry import REGISTRY
from elastic_core.miniature.problems import DATA_SOURCE, TRAIN, MiniatureParameters
from elastic_core.miniature.warm_start import BASE

ENTRIES = [entry for name, entry in REGISTRY.items() if name.startswith(f"{DATA_SOURCE}-")]


def build_miniature(parameters: MiniatureParameters, directory: Path, max_prompt_tokens: int = 32) -> Manifest:
    plan = DataBuild(ENTRIES, {}, BASE, max_prompt_tokens, trained=frozenset([TRAIN]), miniature=parameters)
    return build(plan, directory)
