"""The miniature's data sets as parquet in verl's schema, with a manifest that says what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypedDict

from elastic_core.atomic import replacing
from elastic_core.data.problems import Problem, to_verl
from elastic_core.fingerprint import hash_files
from elastic_core.miniature.problems import DATA_SOURCE, LEVELS, evaluation_rows, training_rows

MANIFEST = "manifest.json"
TRAIN = "train"
VALIDATION = "validation"
NUM_VALIDATION = 32
"""Problems per level that validate during training: of a split of their own, neither trained on nor reported."""


class DataFile(TypedDict):
    """One built file. `sha256` is of name and contents."""

    file: str
    split: str
    source: str
    revision: str
    sha256: str
    rows: int


Manifest = dict[str, DataFile]
"""Data sets by name: "train", "validation" and one per benchmark. Files are relative to the manifest."""


def build_miniature(
    directory: Path,
    *,
    num_train: int,
    hard_fraction: float,
    seed: int,
    problems_per_benchmark: int,
    evaluation_seed: int,
) -> Manifest:
    """Write training, validation and benchmark problems, and last the manifest.

    Args:
        seed: of the training and validation problems.
        evaluation_seed: of the benchmark problems.
    """
    directory.mkdir(parents=True, exist_ok=True)
    training = [_problem(row) for row in training_rows(num_train, seed, hard_fraction)]
    validation = [row for level in LEVELS for row in evaluation_rows(level, NUM_VALIDATION, seed, "tune")]
    manifest = {
        TRAIN: _write(directory, TRAIN, "train", training, seed),
        VALIDATION: _write(directory, VALIDATION, "tune", [_problem(row) for row in validation], seed),
    }
    for level in LEVELS:
        rows = evaluation_rows(level, problems_per_benchmark, evaluation_seed)
        name = f"{DATA_SOURCE}-{level}"
        manifest[name] = _write(directory, name, "evaluation", [_problem(row) for row in rows], evaluation_seed)
    with replacing(directory / MANIFEST) as temporary:
        temporary.write_text(json.dumps(manifest, indent=2) + "\n")
    return manifest


def read_manifest(directory: Path) -> Manifest:
    """The manifest of built data.

    Raises:
        FileNotFoundError: when nothing was built there.
    """
    return json.loads((directory / MANIFEST).read_text())


def benchmarks(manifest: Manifest) -> dict[str, str]:
    """Benchmark names and their files."""
    return {name: entry["file"] for name, entry in manifest.items() if entry["split"] == "evaluation"}


def _problem(row: dict[str, Any]) -> Problem:
    return Problem(f"{DATA_SOURCE}-{row['level']}", str(row["index"]), row["question"], row["answer"], "math")


def _write(directory: Path, name: str, split: str, problems: list[Problem], seed: int) -> DataFile:
    file = directory / f"{name}.parquet"
    with replacing(file) as temporary:
        to_verl(problems, split).write_parquet(temporary)
    return DataFile(
        file=file.name,
        split=split,
        source=f"elastic_core.{DATA_SOURCE}",
        revision=f"seed {seed}",
        sha256=hash_files([file]),
        rows=len(problems),
    )
