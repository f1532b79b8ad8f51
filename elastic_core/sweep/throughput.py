"""How fast a model was swept and how large its rows are on disk: measured by every sweep, read by `elastic plan`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from elastic_core.files import write_text
from elastic_core.sweep.table import Table


class Throughput(NamedTuple):
    """Of one model on one engine.

    Attributes:
        model, engine: fingerprints.
        replicas: engines side by side.
        tokens_per_second: tokens that the engines drew, all together.
        bytes_per_token: of the table, over tokens in its rows.
    """

    model: str
    engine: str
    replicas: int
    tokens_per_second: float
    bytes_per_token: float

    def write(self, stage: Path, name: str) -> None:
        """Into the directory of a sweep, for the model of this name."""
        write_text(throughput_file(stage, name), json.dumps(self._asdict(), indent=2) + "\n")


def throughput_file(stage: Path, name: str) -> Path:
    """Where a sweep's directory holds the throughput of a model that drew tokens."""
    return stage / f"throughput-{re.sub('[^0-9A-Za-z]+', '-', name)}.json"


def bytes_per_token(store: Table) -> float:
    """Size of a table over the tokens in its rows; 0 without rows."""
    tokens = store.scan().select("think_tokens", "solution_tokens", "forced_tokens").sum().collect().sum_horizontal()[0]
    return sum(shard.stat().st_size for shard in store.shards()) / tokens if tokens else 0.0


def measured(stages: Iterable[Path], model: str, engine: str) -> Throughput | None:
    """The latest measurement of this model on this engine, among directories of sweeps."""
    files = [file for stage in stages for file in stage.glob("throughput-*.json")]
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        found = Throughput(**json.loads(file.read_text()))
        if (found.model, found.engine) == (model, engine):
            return found
    return None
