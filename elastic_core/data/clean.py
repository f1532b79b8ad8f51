"""The tables of one data set: from raw files the clean one, and from that a model's prompts or conversations.

A row that cannot be used is refused with data set, file, row and reason. Tables are written in bounded pieces.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from elastic_core.data.dataset import CONVERSATIONS, PROBLEMS, BadRow, Dataset, Form, bad_rows
from elastic_core.data.problems import TEMPLATES, VERL_SCHEMA
from elastic_core.data.readers import read_batches
from elastic_core.errors import UserError
from elastic_core.rewards.truth import longest_tests
from elastic_core.system.files import replacing

MESSAGES = pl.Schema({"messages": CONVERSATIONS["messages"]})  # what verl's supervised fine-tuning reads

PIECE_BYTES = 64 << 20
"""Size of a row group in memory: in bytes, as the tests of one problem may be 100 MB."""

Batches = Iterator[tuple[str, pl.DataFrame]]  # raw rows, with the name of the file that they are from


def file_batches(entry: Dataset, files: Sequence[Path]) -> Batches:
    """Raw rows of the data set's files, in order; a file that cannot be read is a UserError."""
    for file in files:
        try:
            for raw in read_batches(file, entry.map.fields):
                yield str(file), raw
        except BadRow as error:
            raise UserError(f"{entry.name}: {error.at(file)}") from None


def clean_batches(entry: Dataset, batches: Batches, ids: pl.Series | None = None) -> Iterator[pl.DataFrame]:
    """Clean rows, batch by batch; `ids` are those of the rows by position, for an entry that takes them from another.
    UserError for a row that cannot be used or an id that occurs twice, or more or fewer rows than the entry says."""
    seen: set[str] = set()
    done = 0
    for file, raw in batches:
        try:
            rows = entry.map(raw)
            if entry.form is Form.PROBLEMS:
                rows = _problems(rows, done, ids, entry.clusters)
            if "id" in rows.columns:
                bad_rows(rows, pl.col("id").is_null(), "the id is missing or null; expected one")
                found = set(rows["id"])
                again, earlier = ~pl.col("id").is_first_distinct(), pl.col("id").is_in(list(found & seen))
                bad_rows(rows, again, "id {id} occurs a second time; expected each once")
                bad_rows(rows, earlier, "id {id} is also in an earlier row; expected each once")
                seen |= found
        except BadRow as error:
            raise UserError(f"{entry.name}: {error.at(file)}") from None
        done += rows.height
        yield rows
    if ids is not None and ids.len() != done:
        raise UserError(f"{entry.name}: {done} rows, {ids.len()} ids in {entry.ids}; expected one each")
    if entry.rows not in (None, done):
        read = ", ".join(each.path for each in entry.files) or entry.source
        raise UserError(f"{entry.name}: {done} rows in {read}; expected {entry.rows}")


def write_clean(entry: Dataset, batches: Batches, target: Path, ids: pl.Series | None = None) -> int:
    """Write the clean table; returns its rows. UserError as `clean_batches`."""
    schema = {Form.CONVERSATIONS: CONVERSATIONS}.get(entry.form, PROBLEMS)
    return write_table(target, schema, clean_batches(entry, batches, ids))


def write_final(entry: Dataset, clean: Path, target: Path, left_out: pl.Series, max_tests: int | None = None) -> None:
    """Write the clean table without the rows with these ids, and of each problem at most `max_tests` tests."""

    def final() -> Iterator[pl.DataFrame]:
        done = 0
        for rows in read_pieces(clean):
            kept = rows.filter(~pl.col("id").is_in(left_out.implode())) if left_out.len() else rows
            if max_tests is not None:
                kept = kept.with_columns(truth=pl.Series([longest_tests(text, max_tests) for text in kept["truth"]]))
            if entry.form is Form.PROBLEMS:
                kept = verl_rows(entry, kept, done)
            elif entry.form is Form.CONVERSATIONS:
                kept = _messages(entry, kept)
            yield kept
            done += kept.height

    write_table(target, VERL_SCHEMA if entry.form is Form.PROBLEMS else MESSAGES, final())


def verl_rows(entry: Dataset, clean: pl.DataFrame, first_index: int = 0) -> pl.DataFrame:
    """Clean rows of problems in verl's schema; `first_index` is the position of the first in the data set."""
    assert entry.prompt and entry.grader, "every problem has a prompt and is graded"
    message = pl.struct(role=pl.lit("user"), content=TEMPLATES[entry.prompt].render())
    return clean.select(
        data_source=pl.lit(entry.name),
        prompt=pl.concat_list(message),
        ability=pl.lit(entry.domain),
        reward_model=pl.struct(style=pl.lit("rule"), ground_truth="truth"),
        extra_info=pl.struct(
            split=pl.lit(entry.split),
            index=pl.int_range(first_index, first_index + pl.len(), dtype=pl.Int64),
            id="id",
            grader=pl.lit(entry.grader),
        ),
    )


def model_text(entry: Dataset, clean: pl.DataFrame) -> pl.DataFrame:
    """Clean rows as a model sees them: columns id, prompt and truth, or response; of reference data the rows."""
    if entry.form is Form.CONVERSATIONS:
        content = _messages(entry, clean)["messages"].list
        text = {"prompt": content.get(-2), "response": content.last()}
        return clean.select("id", **{name: message.struct.field("content") for name, message in text.items()})
    if entry.prompt is None:
        return clean
    return clean.select("id", TEMPLATES[entry.prompt].render().alias("prompt"), "truth")


def _problems(rows: pl.DataFrame, done: int, ids: pl.Series | None, clusters: str | None) -> pl.DataFrame:
    for column, what in (("question", "question"), ("truth", "answer")):
        bad_rows(rows, pl.col(column).is_null(), f"the {what} is missing or null (as NaN is); expected one")
    bad_rows(rows, pl.col("truth") == "", "the answer is empty; expected one")
    if ids is not None and ids.len() >= done + rows.height:
        rows = rows.with_columns(ids.slice(done, rows.height).alias("id"))
    elif "id" not in rows.columns:
        rows = rows.with_columns(pl.int_range(done, done + pl.len()).cast(pl.String).alias("id"))
    if clusters is not None:
        rows = rows.with_columns(cluster=pl.col("id").str.extract(clusters))
    missing = [pl.lit(None, pl.String).alias(name) for name in ("starter_code", "cluster") if name not in rows.columns]
    rows = rows.with_columns(missing)
    return rows.select(pl.col(name).cast(dtype) for name, dtype in PROBLEMS.items())


def _messages(entry: Dataset, clean: pl.DataFrame) -> pl.DataFrame:
    """Conversations, the question of each as the prompt that the model will be given."""
    messages = pl.col("messages")
    if entry.prompt is None:
        return clean.select(messages)
    question = messages.list.first().struct.field("content")
    columns = clean.with_columns(question=question, starter_code=pl.lit(None, pl.String))
    prompt = pl.struct(role=pl.lit("user"), content=TEMPLATES[entry.prompt].render())
    return columns.select(messages=pl.concat_list(prompt, messages.list.slice(1)))


def write_table(path: Path, schema: pl.Schema, frames: Iterable[pl.DataFrame]) -> int:
    """Write frames of one schema to a parquet file, which appears when all are there; returns its rows. Without any it
    has the columns of `schema`. A full disk is a UserError."""
    # Level 1 is as small as the default within a few percent, and several times as fast. A dictionary and statistics
    # would copy texts of 100 MB, and rows are never looked up by them.
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1}
    options |= {"use_dictionary": False, "write_statistics": False}
    rows, writer = 0, None
    try:
        with replacing(path) as temporary:
            for frame in frames:
                # Whether clusters are known must not move the row groups: a benchmark is known by its file's hash.
                size = max(1, int(frame.drop("cluster", strict=False).estimated_size()))
                for piece in frame.iter_slices(max(1, frame.height * PIECE_BYTES // size)):
                    table = piece.to_arrow()
                    writer = writer or pq.ParquetWriter(temporary, table.schema, **options)
                    writer.write_table(table)
                rows += frame.height
            if writer is None:
                pl.DataFrame(schema=schema).write_parquet(temporary)
            else:
                writer.close()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise UserError(f"{path.stem}: no space left on the disk of {path}; free some and run again") from None
    return rows


def read_pieces(path: Path) -> Iterator[pl.DataFrame]:
    """The table's row groups, one after the other."""
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        yield pl.DataFrame(file.read_row_group(group))


def num_rows(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def remove_leftovers(directory: Path) -> None:
    """Temporary files of a process that was killed."""
    for file in directory.rglob(".*.tmp"):
        file.unlink()
