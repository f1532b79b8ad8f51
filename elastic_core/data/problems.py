"""Data as every stage reads it: prompts, problems in verl's schema, and the manifest.

A template has a version in its name and its hash in the manifest; a change of wording is a new name. A length is that
of one user message through the chat template, with the generation prompt; nothing is truncated.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import polars as pl

from elastic_core.models.special_tokens import render
from elastic_core.system.fingerprint import hash_value

_PLACEHOLDER = re.compile(r"\{(question|starter_code)\}")
CHUNK_PROMPTS = 1024
CHUNK_CHARACTERS = 1 << 19
"""Most prompts and characters of a tokenizer's call: enough for every core, and some 200 MB, as the tokenizer holds
400 bytes a token until a chunk is counted. A longer prompt goes alone, since it cannot be split exactly."""

_PARALLELISM = "TOKENIZERS_PARALLELISM"
_IMPORTED_BY = os.getpid()  # Differs from the process's id in a forked child.


@dataclass(frozen=True)
class Template:
    """The user message of a problem."""

    name: str
    text: str  # `{question}` stands for the question
    source: str  # source of the wording
    with_starter_code: str | None = None  # in place of `text` for problems that have some, with `{starter_code}`

    def record(self) -> dict[str, str | None]:
        """Its record in a manifest."""
        texts = {"text": self.text, "with_starter_code": self.with_starter_code}
        return {"sha256": hash_value(list(texts.values())), **texts, "source": self.source}

    def render(self) -> pl.Expr:
        """Prompts from the columns `question` and `starter_code` of a clean table."""
        plain = _fill(self.text)
        if self.with_starter_code is None:
            return plain
        return pl.when(pl.col("starter_code").is_null()).then(plain).otherwise(_fill(self.with_starter_code))


def _fill(text: str) -> pl.Expr:
    """Replaces in the template only: a placeholder inside a question is text."""
    parts = _PLACEHOLDER.split(text)  # literal, column, literal, …
    return pl.concat_str(*(pl.col(part) if i % 2 else pl.lit(part) for i, part in enumerate(parts) if part))


_PROMPTS = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text(encoding="utf-8"))
TEMPLATES = {name: Template(name, **table) for name, table in _PROMPTS.items()}
"""Templates by name."""


class LengthSummary(TypedDict):
    """Lengths in tokens, as written to JSON: each the shortest that holds at least this share of the prompts."""

    median: int
    p90: int
    p99: int
    max: int


def prompt_lengths(tokenizer: Any, prompts: Sequence[str]) -> np.ndarray:
    """Tokens of each prompt through the chat template, on all cores: shape (prompts,), int64. Raises as `render`."""
    lengths: list[int] = []
    with _parallel_tokenizers():
        for chunk in _chunks(prompts):
            ids = render(
                tokenizer,
                [[{"role": "user", "content": prompt}] for prompt in chunk],
                add_generation_prompt=True,
                return_dict=False,
                # No masks, and no warning about lengths beyond the model's: to find them is what this is for.
                tokenizer_kwargs={"return_attention_mask": False, "verbose": False},
            )
            lengths += map(len, ids)
    return np.array(lengths, dtype=np.int64)


def summarize_lengths(lengths: np.ndarray | None) -> LengthSummary | None:
    """Summary of lengths in tokens, shape (prompts,), integers of 0 and more; None where there are none."""
    if lengths is None or not lengths.size:
        return None
    # Linear interpolation would give a length between two prompts, which holds fewer of them than it says.
    median, p90, p99, longest = map(int, np.percentile(lengths, [50, 90, 99, 100], method="inverted_cdf"))
    return LengthSummary(median=median, p90=p90, p99=p99, max=longest)


def _chunks(prompts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Runs of consecutive prompts within both limits, or one prompt alone."""
    start = characters = 0
    for position, prompt in enumerate(prompts):
        characters += len(prompt)
        if position > start and (position - start == CHUNK_PROMPTS or characters > CHUNK_CHARACTERS):
            yield prompts[start:position]
            start, characters = position, len(prompt)
    if start < len(prompts):
        yield prompts[start:]


@contextmanager
def _parallel_tokenizers() -> Iterator[None]:
    """Let the tokenizers library use all cores inside; it reads this variable at every call. Elsewhere it is
    "false": a forked child waits for ever for threads that only its parent has."""
    if os.getpid() != _IMPORTED_BY:
        yield
        return
    before = {name: text for name, text in os.environ.items() if name == _PARALLELISM}
    os.environ[_PARALLELISM] = "true"
    try:
        yield
    finally:
        del os.environ[_PARALLELISM]
        os.environ.update(before)


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
CLEAN = "clean"  # Directory of the clean tables, next to the manifest.


@dataclass(frozen=True)
class Problem:
    """One problem of a benchmark."""

    benchmark: str
    id: str  # unique within the benchmark
    question: str  # the prompt
    truth: str
    grader: str  # the kind that `elastic_core.rewards.grade` takes
    cluster: str | None = None  # the group that it shares with problems like it, where its source names one


def read_problems(file: Path) -> list[Problem]:
    """Problems of a parquet file in verl's schema. Another schema is a ValueError. Their clusters are read from
    the clean table: a prompt does not hold them, and a benchmark with and without them has one hash."""
    frame = pl.read_parquet(file)
    if frame.schema != VERL_SCHEMA:
        raise ValueError(f"{file}: columns {dict(frame.schema)}; expected {dict(VERL_SCHEMA)}")
    clean, clusters = file.parent / CLEAN / file.name, dict[str, str]()
    if clean.exists() and "cluster" in pl.read_parquet_schema(clean):
        clusters = dict(pl.read_parquet(clean, columns=["id", "cluster"]).drop_nulls().iter_rows())
    problems = []
    for row in frame.iter_rows(named=True):
        question, truth, info = row["prompt"][-1]["content"], row["reward_model"]["ground_truth"], row["extra_info"]
        cluster = clusters.get(info["id"]) or None
        problems.append(Problem(row["data_source"], info["id"], question, truth, info["grader"], cluster))
    return problems


class SourceRecord(TypedDict):
    """A raw file."""

    file: str
    sha256: str
    bytes: int


class OverlapRecord(TypedDict):
    """Training rows that overlap with one evaluation set, by the kind of overlap."""

    exact: int
    ngram: int
    ngram_rare: int  # without 13-grams of more than `COMMON` training rows


class Counts(TypedDict):
    """What building a data set found out."""

    sha256: str  # of name and contents of its file
    rows: int  # in the clean table: all that the source holds
    kept_rows: int  # in its file
    duplicates: int  # rows with an earlier row's question; counted, not removed
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
    decontaminated: bool  # whether rows that overlap were left out of training sets, or only counted
    max_tests: int | None  # kept of a problem that is trained on, where its set is cut; None keeps all
    templates: dict[str, dict[str, str | None]]  # hash, wording and origin of each prompt template, by name
    datasets: dict[str, DatasetRecord]


def read_manifest(directory: Path) -> Manifest:
    """The manifest of built data; FileNotFoundError when nothing was built there."""
    return json.loads((directory / MANIFEST).read_text())
