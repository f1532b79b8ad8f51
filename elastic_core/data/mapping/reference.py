"""What is looked up or imitated rather than solved: thought templates, ratings, conversations."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
import polars as pl

from elastic_core.data.dataset import CONVERSATIONS, ROW, BadRow, Mapper, bad_rows, reads

TEMPLATES = pl.Schema(
    {ROW: pl.UInt32, "id": pl.String, "chapter": pl.String, "section": pl.String, "name": pl.String, "json": pl.String}
)
ALPACA = ("instruction", "input", "output", "system")
"""`input` and `system` are often empty or missing."""


@partial(Mapper, None)
def template_library(raw: pl.DataFrame) -> pl.DataFrame:
    """ReasonFlux's {chapter: {section: [template]}} as one row per template, its fields (irregular) as JSON.

    The id is chapter.section.position, each counted from 1: names repeat within a section.
    """
    rows = [
        {
            ROW: chapter_row,
            "id": f"{chapter_row}.{number}.{position}",
            "chapter": chapter,
            "section": section,
            "name": _template_name(chapter_row, f"{chapter} / {section}", position, template),
            "json": orjson.dumps(template).decode(),
        }
        for chapter_row, chapter, text in raw.select(ROW, "key", "json").iter_rows()
        for number, (section, templates) in enumerate(_sections(chapter_row, chapter, text), 1)
        for position, template in enumerate(templates, 1)
    ]
    return pl.DataFrame(rows, schema=TEMPLATES)


@partial(Mapper, None)
def ids(raw: pl.DataFrame) -> pl.DataFrame:
    """A JSON list of texts as column id."""
    rows = raw.select(ROW, id=pl.col("json").str.json_decode(pl.String))
    bad_rows(rows, pl.col("id").is_null(), "null; expected an id")
    return rows


@partial(Mapper, None)
def ratings(raw: pl.DataFrame) -> pl.DataFrame:
    """Codeforces' {rating: number of users} as columns rating and users."""
    integer = {"rating": "key", "users": "json"}
    rows = raw.select(ROW, **{name: pl.col(column).cast(pl.Int64, strict=False) for name, column in integer.items()})
    bad_rows(rows, pl.any_horizontal(pl.all().is_null()), "rating {rating}, users {users}; expected two integers")
    return rows


@reads(*ALPACA)
def alpaca(raw: pl.DataFrame) -> pl.DataFrame:
    """instruction, input and output as a conversation of two messages, or three where `system` holds a prompt."""
    for name in ("instruction", "output"):
        bad_rows(raw, pl.col(name).str.strip_chars().fill_null("") == "", f"{name} is missing or empty; expected text")
    asked = pl.when(pl.col("input").fill_null("") == "").then("instruction")
    user = asked.otherwise(pl.format("{}\n{}", "instruction", pl.col("input").fill_null("")))
    exchange = pl.concat_list(
        pl.struct(role=pl.lit("user"), content=user), pl.struct(role=pl.lit("assistant"), content="output")
    )
    if "system" in raw.columns:
        system = pl.struct(role=pl.lit("system"), content=pl.col("system").fill_null(""))
        is_given = pl.col("system").fill_null("").str.strip_chars() != ""
        messages = pl.when(is_given).then(pl.concat_list(system, exchange)).otherwise(exchange)
    else:
        messages = exchange
    return raw.select(pl.col(ROW).cast(pl.String).alias("id"), messages.alias("messages"), ROW).cast(CONVERSATIONS)


def _sections(row: int, chapter: str | None, text: str) -> list[tuple[str, list[Any]]]:
    sections = orjson.loads(text)
    if not isinstance(sections, dict) or not all(isinstance(templates, list) for templates in sections.values()):
        raise BadRow(row, f"chapter {chapter!r}; expected an object of sections, each a list of templates")
    return list(sections.items())


def _template_name(row: int, where: str, position: int, template: Any) -> str:
    name = template.get("template_name") if isinstance(template, dict) else None
    if not isinstance(name, str) or not name.strip():
        raise BadRow(row, f"{where}, template {position}: no template_name; expected text")
    return name.strip()
