"""The manifest of built data: where every file came from, what was left out, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

from elastic_core.data.lengths import LengthSummary
from elastic_core.files import write_text

MANIFEST = "manifest.json"


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


class TemplateRecord(TypedDict):
    """A prompt template: its wording, and its hash."""

    sha256: str
    text: str
    with_starter_code: str | None
    source: str


class Manifest(TypedDict):
    """Everything that was built together.

    Attributes:
        tokenizer: fingerprint of the tokenizer that prompts are measured with.
        max_prompt_tokens: longest prompt that is kept in the sets that are trained on; None when none is.
        common_ngrams: training rows beyond which a 13-gram is a common phrase and no overlap; None counts all.
    """

    tokenizer: str
    max_prompt_tokens: int | None
    common_ngrams: int | None
    templates: dict[str, TemplateRecord]
    datasets: dict[str, DatasetRecord]


def write_manifest(directory: Path, manifest: Manifest) -> None:
    write_text(directory / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def read_manifest(directory: Path) -> Manifest:
    """The manifest of built data.

    Raises:
        FileNotFoundError: when nothing was built there.
    """
    return json.loads((directory / MANIFEST).read_text())
