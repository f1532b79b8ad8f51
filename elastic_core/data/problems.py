"""Built data as every stage reads it: problems in verl's schema, for training and benchmarks alike, and the manifest
that says where every file came from, what was left out, and why."""

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
    """One problem of a benchmark.

    `id` is unique within the benchmark; `question` is the whole prompt; `grader` is the kind that
    `elastic_core.rewards.grade` takes.
    """

    benchmark: str
    id: str
    question: str
    truth: str
    grader: str


def read_problems(file: Path) -> list[Problem]:
    """Problems of a parquet file in verl's schema.

    Raises:
        ValueError: when the file's schema is another.
        FileNotFoundError: when there is none.
    """
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
    """Training rows that overlap with one evaluation set, by what is the same.

    Attributes:
        ngram_rare: rows that would still count if 13-grams of more than `COMMON` training rows were left aside.
    """

    exact: int
    ngram: int
    ngram_rare: int


class Counts(TypedDict):
    """What building a data set found out.

    Attributes:
        sha256: of name and contents of its file.
        rows: in the clean table, which is what the source holds.
        kept_rows: in its file.
        duplicates: rows whose question occurred before; counted, not removed.
        near_empty: rows with hardly any question; counted, not removed.
        overlap: by evaluation set; empty for a set that is not trained on.
        removed: rows of the clean table that are not in its file, by reason; `removed.parquet` lists them.
        prompt_tokens: lengths of all prompts of the clean table with the manifest's tokenizer.
    """

    sha256: str
    rows: int
    kept_rows: int
    duplicates: int
    near_empty: int
    overlap: dict[str, OverlapRecord]
    removed: dict[str, int]
    prompt_tokens: LengthSummary | None


class DatasetRecord(Counts):
    """One built data set.

    Attributes:
        file: relative to the manifest.
    """

    file: str
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
    """Everything that was built together.

    Attributes:
        tokenizer: fingerprint of the tokenizer that prompts are measured with.
        max_prompt_tokens: longest prompt that is kept in the sets that are trained on; None when none is.
        common_ngrams: training rows beyond which a 13-gram is a common phrase and no overlap; None counts all.
        decontaminated: whether rows that overlap were left out of what is trained on, or only counted.
        max_tests: tests that are kept of a problem that is trained on, where its set is cut; None keeps all.
        templates: hash, wording and origin of each prompt template, by name.
    """

    tokenizer: str
    max_prompt_tokens: int | None
    common_ngrams: int | None
    decontaminated: bool
    max_tests: int | None
    templates: dict[str, dict[str, str | None]]
    datasets: dict[str, DatasetRecord]


def read_manifest(directory: Path) -> Manifest:
    """The manifest of built data.

    Raises:
        FileNotFoundError: when nothing was built there.
    """
    return json.loads((directory / MANIFEST).read_text())
