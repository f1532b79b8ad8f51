"""What a report shows: built once by `reports.build`, rendered as Markdown and as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from reports.claims import Claim

LOW, HIGH = " low", " high"
"""Suffixes of the columns that hold the 95 % interval of the column before them."""


class Shown(NamedTuple):
    """A place of a table: what is read there, and what it is sorted by (None: nothing is there)."""

    text: str
    value: float | str | None


@dataclass(frozen=True)
class ReportTable:
    """A small table.

    Attributes:
        name: stem of its CSV file.
        title: plain text.
        caption: what the numbers are and how many they rest on; plain text.
        frame: one row per line, in display units. A column "x" with "x low" and "x high" is an estimate, shown as one
            place "x [low, high]"; bounds may be infinite, and are null for a number that came without. Texts may be
            written by anyone and are escaped by whoever renders them.
        signed: columns whose numbers are shown with their sign.
    """

    name: str
    title: str
    caption: str
    frame: pl.DataFrame
    signed: frozenset[str] = frozenset()

    @cached_property
    def header(self) -> list[str]:
        """Names of the places of a line, from left to right."""
        bounds = {name + suffix for name in self.frame.columns for suffix in (LOW, HIGH)}
        return [name for name in self.frame.columns if name not in bounds]

    @cached_property
    def lines(self) -> list[list[Shown]]:
        """Every line, as long as `header`."""
        return [[self._shown(name, row) for name in self.header] for row in self.frame.iter_rows(named=True)]

    def _shown(self, name: str, row: Mapping[str, Any]) -> Shown:
        value, low, high = row[name], row.get(name + LOW), row.get(name + HIGH)
        if value is None:
            return Shown("", None)
        sign = name in self.signed
        if low is None or high is None:
            return Shown(_number(value, sign), value)
        return Shown(f"{_number(value, sign)} [{_number(low, sign)}, {_number(high, sign)}]", value)


@dataclass(frozen=True)
class ReportFigure:
    """A figure, as PNG and SVG, and the numbers in it as CSV.

    Attributes:
        name: stem of its files.
        caption: what its marks mean and how many they rest on; plain text.
    """

    name: str
    title: str
    caption: str
    png: Path
    svg: Path
    data: Path


@dataclass(frozen=True)
class ReportContent:
    """Everything that a report shows of one trajectory table.

    Attributes:
        directory: where the report's files lie.
        verdict: what the table says about the trained model, or else about the strategies, in one sentence.
        coverage: how much of the sweep is there, in one sentence; None where nobody knows how much was asked for.
        summary: a row per cell, in schema `reports.summary.SUMMARY`.
        claims: what the paper leads us to expect, and whether it holds.
        tables: in the order of the report; each lies in `tables/` as CSV.
        figures: in the order of the report.
        provenance: what the numbers come from, name → value.
        documents: longer documents, name → anything that JSON can say: the configuration, the manifests of table and
            data.
        remarks: Markdown for the part of a benchmark, by its name.
    """

    directory: Path
    verdict: str
    coverage: str | None
    summary: pl.DataFrame
    claims: list[Claim]
    tables: list[ReportTable]
    figures: list[ReportFigure]
    provenance: Mapping[str, Any]
    documents: Mapping[str, Any]
    remarks: Mapping[str, str]


def _number(value: Any, sign: bool) -> str:
    """Whole numbers whole, others to one decimal; thousands apart. Text as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:{'+' if sign else ''},{'d' if isinstance(value, int) else '.1f'}}"
