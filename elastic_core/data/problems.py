"""Built data as every stage reads it: problems in verl's schema, and the manifest, which says where every file came
from, what was left out, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import polars as pl

from elastic_core.data.prompts import LengthSummary

VERL_SCHEMA = pl.Schema(
    {
        "data_source": pl.String(),
        "prompt": pl.List(pl.Struct({"role": pl.String(), "content": pl.String()})),
        "ability": pl.String(),
        "reward_model": pl.Struct({"style": pl.String(), "ground_truth": pl.String()}),
        "extra_info": pl.Struct({"split": pl.String(), "index": pl.Int64(), "id": pl.String(), "grader": pl.String()}),
    }
)
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Problem:
    """One problem of a benchmark."""

    benchmark: str
    id: str  # unique within the benchmark
    question: str  # the whole prompt
    truth: str
    grader: str  # the kind that `elastic_core.rewards.grade` takes


def read_problems(file: Path) -> list[Problem]:
    """Problems of a parquet file in verl's schema. Another schema is a ValueError."""
    frame = pl.read_parquet(file)
    if frame.schema != VERL_SCHEMA:
        raise ValueError(f"{file}: columns {dict(frame.schema)}; expected {dict(VERL_SCHEMA)}")
    return [
        Problem(
            benchmark=row["data_source"],
            id=row["extra_info"]["id"],
            question=row["prompt"][-1]["content"],
            truth=row["reward_model"]["ground_truth"],
            grader=row["extra_info"]["grader"],
        )
        for row in frame.iter_rows(named=True)
    ]


class SourceRecord(TypedDict):
    """A raw file."""

    file: str
    sha256: str
    bytes: int


class OverlapRecord(TypedDict):
    """Training rows that overlap with one evaluation set, by what is the same."""

    exact: int
    ngram: int
    ngram_rare: int  # without 13-grams of more than `COMMON` training rows


class Counts(TypedDict):
    """What building a data set found out."""

    sha256: str  # of name and contents of its file
    rows: int  # in the clean table, which is what the source holds
    kept_rows: int  # in its file
    duplicates: int  # rows whose question occurred before; counted, not removed
    near_empty: int  # rows with hardly any question; counted, not removed
    overlap: dict[str, OverlapRecord]  # by evaluation set; empty for a set that is not trained on
    removed: dict[str, int]  # rows of the clean table that its file lacks, by reason; `removed.parquet` lists them
    prompt_tokens: LengthSummary | None  # of all rows of the clean table, with the manifest's tokenizer


class DatasetRecord(Counts):
    """One built data set."""

    file: str  # relative to the manifest
    split: str
    domain: str
    form: str
    grader: str | None
    prompt: str | None
    source: str
    revision: str | None
    licence: str
    files: list[SourceRecord]


class Manifest(TypedDict):
    """Everything that was built together."""

    tokenizer: str  # fingerprint of the tokenizer that prompts are measured with
    max_prompt_tokens: int | None  # longest prompt that is kept in the sets that are trained on; None without any
    common_ngrams: int | None  # 13-grams of more training rows are common phrases, no overlap; None counts all
    decontaminated: bool  # whether rows that overlap were left out of what is trained on, or only counted
    max_tests: int | None  # kept of a problem that is trained on, where its set is cut; None keeps all
    templates: dict[str, dict[str, str | None]]  # hash, wording and origin of each prompt template, by name
    datasets: dict[str, DatasetRecord]


def read_manifest(directory: Path) -> Manifest:
    """The manifest of built data; FileNotFoundError when nothing was built there."""
    return json.loads((directory / MANIFEST).read_text())
