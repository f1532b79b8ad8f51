"""Raw files to one clean table per data set. What cannot be used is refused with data set, file, row and reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from elastic_core.data.dataset import CONVERSATIONS, PROBLEMS, BadRow, Dataset, Form, bad_rows
from elastic_core.data.raw import read_batches
from elastic_core.data.tables import writing
from elastic_core.errors import UserError

Batches = Iterator[tuple[str, pl.DataFrame]]
"""Raw rows, with the name of the file that they are from."""


def file_batches(entry: Dataset, files: Sequence[Path]) -> Batches:
    """Raw rows of the data set's files, in order.

    Raises:
        UserError: when one cannot be read.
    """
    for file in files:
        try:
            for raw in read_batches(file, entry.fields):
                yield str(file), raw
        except BadRow as error:
            raise _refusal(entry, str(file), error) from None


def clean_batches(entry: Dataset, batches: Batches, ids: pl.Series | None = None) -> Iterator[pl.DataFrame]:
    """Clean rows, batch by batch.

    Args:
        ids: of the rows by position, for an entry that takes them from another.

    Raises:
        UserError: a row without question or answer, an id that occurs twice, or what the mapping refuses.
    """
    seen: set[str] = set()
    done = 0
    for file, raw in batches:
        try:
            rows = entry.map(raw)
            if entry.form is Form.PROBLEMS:
                rows = _problems(rows, done, ids)
            if "id" in rows.columns:
                _check_ids(rows, seen)
        except BadRow as error:
            raise _refusal(entry, file, error) from None
        done += rows.height
        yield rows
    if ids is not None and ids.len() != done:
        raise UserError(f"{entry.name}: {done} rows, {ids.len()} ids in {entry.ids}; expected one each")


def write_clean(entry: Dataset, batches: Batches, target: Path, ids: pl.Series | None = None) -> int:
    """Write the clean table; returns its rows.

    Raises:
        UserError: as `clean_batches`, and when the rows are not as many as the entry says.
    """
    with writing(target, {Form.CONVERSATIONS: CONVERSATIONS}.get(entry.form, PROBLEMS)) as table:
        for rows in clean_batches(entry, batches, ids):
            table.write(rows)
        if entry.rows is not None and table.rows != entry.rows:
            raise UserError(f"{entry.name}: {table.rows} rows in {_sources(entry)}; expected {entry.rows}")
    return table.rows


def _problems(rows: pl.DataFrame, done: int, ids: pl.Series | None) -> pl.DataFrame:
    for column, what in (("question", "question"), ("truth", "answer")):
        bad_rows(rows, pl.col(column).is_null(), f"the {what} is missing or null; expected one")
    bad_rows(rows, pl.col("truth") == "", "the answer is empty; expected one")
    if ids is not None and ids.len() >= done + rows.height:
        rows = rows.with_columns(ids.slice(done, rows.height).alias("id"))
    elif "id" not in rows.columns:
        rows = rows.with_columns(pl.int_range(done, done + pl.len()).cast(pl.String).alias("id"))
    if "starter_code" not in rows.columns:
        rows = rows.with_columns(pl.lit(None, pl.String).alias("starter_code"))
    return rows.select(pl.col(name).cast(dtype) for name, dtype in PROBLEMS.items())


def _check_ids(rows: pl.DataFrame, seen: set[str]) -> None:
    bad_rows(rows, pl.col("id").is_null(), "the id is missing or null; expected one")
    found = set(rows["id"])
    if len(found) < rows.height:
        bad_rows(rows, ~pl.col("id").is_first_distinct(), "id {id} occurs a second time; expected each once")
    if found & seen:
        bad_rows(rows, pl.col("id").is_in(list(found & seen)), "id {id} is also in an earlier row; expected each once")
    seen |= found


def _sources(entry: Dataset) -> str:
    return ", ".join(file.path for file in entry.files) or str(entry.source)


def _refusal(entry: Dataset, file: str, error: BadRow) -> UserError:
    where = file if error.row is None else f"{file}: row {error.row}"
    return UserError(f"{entry.name}: {where}: {error.reason}")
