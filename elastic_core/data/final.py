"""Tables of one data set: what a model is asked or imitates, from clean rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from elastic_core.data import tables
from elastic_core.data.dataset import CONVERSATIONS, Dataset, Form
from elastic_core.data.problems import VERL_SCHEMA, to_verl
from elastic_core.data.prompts import TEMPLATES

MESSAGES = pl.Schema({"messages": CONVERSATIONS["messages"]})
"""What verl's supervised fine-tuning reads."""


def write_problems(entry: Dataset, clean: Path, target: Path, left_out: pl.Series) -> None:
    """verl's parquet from the clean table, without the rows with these ids."""
    assert entry.prompt and entry.grader, "every problem has a prompt and is graded"
    with tables.writing(target, VERL_SCHEMA) as table:
        for kept in _kept(clean, left_out):
            table.write(
                to_verl(
                    kept,
                    name=entry.name,
                    split=entry.split,
                    domain=entry.domain,
                    grader=entry.grader,
                    template=TEMPLATES[entry.prompt],
                    first_index=table.rows,
                )
            )


def write_others(entry: Dataset, clean: Path, target: Path, left_out: pl.Series) -> None:
    with tables.writing(target, MESSAGES) as table:
        for kept in _kept(clean, left_out):
            table.write(_messages(entry, kept) if entry.form is Form.CONVERSATIONS else kept)


def model_text(entry: Dataset, clean: pl.DataFrame) -> pl.DataFrame:
    """Clean rows as a model sees them: columns id, prompt and truth, or response; of reference data the rows."""
    if entry.form is Form.CONVERSATIONS:
        content = _messages(entry, clean)["messages"].list
        return clean.select(
            "id",
            prompt=content.get(-2).struct.field("content"),
            response=content.last().struct.field("content"),
        )
    if entry.prompt is None:
        return clean
    return clean.select("id", TEMPLATES[entry.prompt].render().alias("prompt"), "truth")


def _messages(entry: Dataset, clean: pl.DataFrame) -> pl.DataFrame:
    """Conversations, the question of each as the prompt that the model will be given."""
    messages = pl.col("messages")
    if entry.prompt is None:
        return clean.select(messages)
    question = messages.list.first().struct.field("content")
    columns = clean.with_columns(question=question, starter_code=pl.lit(None, pl.String))
    asked = pl.struct(role=pl.lit("user"), content=TEMPLATES[entry.prompt].render())
    return columns.select(messages=pl.concat_list(asked, messages.list.slice(1)))


def _kept(clean: Path, left_out: pl.Series) -> Iterator[pl.DataFrame]:
    """The clean table piece by piece, without the rows with these ids."""
    for rows in tables.read_pieces(clean):
        yield rows.filter(~pl.col("id").is_in(left_out.implode())) if left_out.len() else rows
