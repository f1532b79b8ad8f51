"""Text that others chose, such as names of models and benchmarks, in files that programs interpret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl

_MARKDOWN = re.compile(r"[\\`*|]|<(?=[A-Za-z/!?])|&(?=[#A-Za-z])|\](?=[(\[])")
_FORMULA = re.compile(r"[=+\-@\t\r]")


class Markdown(str):
    """Text that is Markdown already, and meant so."""

    __slots__ = ()


def escaped(value: Any) -> Markdown:
    """A value as one line of Markdown that reads as the value does: no markup, no HTML, no link, no end of a table's
    place."""
    if isinstance(value, Markdown):
        return value
    return Markdown(_MARKDOWN.sub(r"\\\g<0>", " ".join(str(value).split())))


def write_csv(frame: pl.DataFrame, path: Path, float_precision: int) -> None:
    """Write a table that a spreadsheet may open: what it would take for a formula begins with an apostrophe, by which
    it knows text."""
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    safe = frame.with_columns(pl.col(texts).str.replace(rf"^({_FORMULA.pattern})", "'${1}"))
    safe = safe.rename({name: f"'{name}" for name in frame.columns if _FORMULA.match(name)})
    safe.write_csv(path, float_precision=float_precision)
