"""The miniature's data sets, built without a flow."""

from pathlib import Path

from elastic_core.data.build import DataBuild, build
from elastic_core.data.miniature import ENTRIES, TRAIN, MiniatureParameters
from elastic_core.data.problems import Manifest
from elastic_core.miniature.warm_start import BASE


def build_miniature(parameters: MiniatureParameters, directory: Path, max_prompt_tokens: int = 32) -> Manifest:
    plan = DataBuild(ENTRIES, {}, BASE, max_prompt_tokens, trained=frozenset([TRAIN]), miniature=parameters)
    return build(plan, directory)
