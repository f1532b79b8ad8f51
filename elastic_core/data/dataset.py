"""A data set: one declarative entry with its source and the mapping of its rows to ours.

Raw files become one clean table per data set (`PROBLEMS`, `CONVERSATIONS`, or another shape for reference data),
by a mapping function for batches of raw rows. Clean tables become what verl reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import Any, Literal

import polars as pl

Split = Literal["train", "validation", "evaluation", "reference"]


@dataclass(frozen=True)
class SourceFile:
    """A file of a source. Its sha256 is stated for all sources but the hub, where the first fetch records it."""

    path: str  # inside the repository; on the hub and in a mirror also a pattern such as `taco/train-*.parquet`
    sha256: str | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class GitHub:
    """Raw files of a GitHub repository at a commit."""

    repository: str
    commit: str

    def __str__(self) -> str:
        return f"github.com/{self.repository}"

    @property
    def revision(self) -> str:
        return self.commit

    def url(self, path: str) -> str:
        return f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/{path}"


@dataclass(frozen=True)
class Hub:
    """Files of a data set repository on the Hugging Face hub."""

    repository: str
    revision: str = "main"  # branch, tag or commit; the first fetch resolves it to a commit and records that

    def __str__(self) -> str:
        return f"huggingface.co/datasets/{self.repository}"


@dataclass(frozen=True)
class Local:
    """A user's file, at the path it had when it was added."""

    directory: Path

    def __str__(self) -> str:
        return str(self.directory)

    @property
    def revision(self) -> str:
        return "as added"


@dataclass(frozen=True)
class Generated:
    """Rows that a module of ours makes from a seed."""

    module: str

    def __str__(self) -> str:
        return self.module


Source = GitHub | Hub | Local | Generated


class Form(StrEnum):
    """Kind of a data set's rows."""

    PROBLEMS = "problems"  # a question with a truth to grade against, for training and benchmarks
    CONVERSATIONS = "conversations"  # messages to imitate, for supervised fine-tuning
    RECORDS = "records"  # anything else that a stage looks up: thought templates, rating tables


ROW = "row"  # column of every raw and clean table: the row's position in its file, counted from 1 (in JSONL the line)

PROBLEMS = pl.Schema(
    {
        "id": pl.String(),  # the source's, unique within the data set
        "question": pl.String(),
        "starter_code": pl.String(),  # null where the problem has none
        "truth": pl.String(),  # what `elastic_core.rewards.grade` takes
        "cluster": pl.String(),  # group of problems that are alike, such as a template's or a contest's; or null
        ROW: pl.UInt32(),
    }
)
"""Clean table of problems."""

CONVERSATIONS = pl.Schema(
    {
        "id": pl.String(),
        "messages": pl.List(pl.Struct({"role": pl.String(), "content": pl.String()})),
        ROW: pl.UInt32(),
    }
)
"""Clean table of conversations."""

JSON = pl.Object()
"""Type of a raw column that parquet may hold as objects; they are read as their JSON."""

Row = dict[str, Any]
Fields = Mapping[str, pl.DataType | type[pl.DataType]]


@dataclass(frozen=True, eq=False)
class Mapper:
    """Maps raw rows to clean ones: from the columns ROW and `fields` to ROW, `question` and `truth`, and where it has
    them `id`, `starter_code` and `cluster`. It may leave rows out; it reports a wrong one by `bad_rows`."""

    fields: Fields | None  # columns with their types; None: `key` and `json` (text) of each element of a JSON document
    clean: Callable[[pl.DataFrame], pl.DataFrame]

    def __call__(self, raw: pl.DataFrame) -> pl.DataFrame:
        return self.clean(raw)


def reads(*texts: str, **others: pl.DataType) -> Callable[[Callable[[pl.DataFrame], pl.DataFrame]], Mapper]:
    """Makes a function a mapper of these columns of text, and others with their types."""
    return partial(Mapper, {**dict.fromkeys(texts, pl.String()), **others})


class BadRow(ValueError):
    """A row that cannot be used; `row` is its position in its file, from 1, and None when the file is at fault."""

    def __init__(self, row: int | None, reason: str) -> None:
        super().__init__(reason)
        self.row, self.reason = row, reason

    def at(self, file: Path | str) -> str:
        """Return the sentence for a user: file, row and reason."""
        return f"{file}: {self.reason}" if self.row is None else f"{file}: row {self.row}: {self.reason}"


def shortened(value: Any) -> str:
    """Return a value for a message, in at most 80 characters."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def each_row(*columns: str) -> Callable[[Callable[[Row], Row]], Callable[[pl.DataFrame], pl.DataFrame]]:
    """Makes a function of a row one of a batch, with these columns; its ValueErrors become BadRows.

    A frame for each row, so that its text is held once: polars shares it when frames are joined.
    """
    schema = {name: PROBLEMS[name] for name in (ROW, *columns)}

    def of_batch(clean: Callable[[Row], Row]) -> Callable[[pl.DataFrame], pl.DataFrame]:
        @wraps(clean)
        def mapped(raw: pl.DataFrame) -> pl.DataFrame:
            frames = [pl.DataFrame(schema=schema)]
            for index in range(raw.height):
                number = raw[ROW][index]
                try:
                    frames.append(pl.DataFrame([{ROW: number} | clean(raw.row(index, named=True))], schema=schema))
                except (ValueError, RecursionError) as error:  # JSON nested too deeply is the latter
                    raise BadRow(number, str(error)) from error
            return pl.concat(frames)

        return mapped

    return of_batch


@dataclass(frozen=True)
class Dataset:
    """One data set."""

    name: str  # also the `data_source` of its rows
    description: str
    source: Source
    files: tuple[SourceFile, ...]
    licence: str
    split: Split  # "train" is trained on, "validation" watched in training, "evaluation" reported, "reference" used
    domain: Literal["math", "code", "science", "arithmetic", "templates"]
    map: Mapper
    rows: int | None = None  # expected in the clean table; None where upstream does not say
    form: Form = Form.PROBLEMS
    grader: str | None = None  # kind that `elastic_core.rewards.grade` takes; None where nothing is graded
    prompt: str | None = None  # name in `TEMPLATES`, for a problem or for the question that begins a conversation
    clusters: str | None = None  # a pattern that finds a problem's cluster in its id, where the mapping has none
    ids: str | None = None  # a reference data set with the `id` of the n-th problem in its n-th row
    needs: tuple[str, ...] = ()  # further reference data sets that its results are read with
    cuts_tests: bool = False  # whether those who trained on it took a part of each problem's tests (`data.max_tests`)
    chosen: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What the mapping depends on that is neither in the files nor in the code."""


def bad_rows(raw: pl.DataFrame, condition: pl.Expr, reason: str) -> None:
    """Refuse the first row that meets the condition (null counts as not meeting it), by a BadRow. In the reason, with
    the found and the expected, `{column}` is replaced by the row's value."""
    found = raw.filter(condition)
    if found.height:
        first = found.row(0, named=True)
        for name, value in first.items():
            reason = reason.replace("{" + name + "}", shortened(repr(value)))
        raise BadRow(first[ROW], reason)
