"""Tables in a terminal: the cells of one table, and two tables paired, as `elastic compare` does."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any

import polars as pl
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

from elastic_core.budget import Budget
from elastic_core.errors import printable
from elastic_core.statistics.accuracy import mean_score, paired_differences, score_difference
from elastic_core.statistics.budgets import anytime_accuracy
from elastic_core.statistics.curves import area_differences, log_law, read_curve
from elastic_core.statistics.estimates import (
    common_problems,
    estimates_table,
    length_error,
    mean_tokens,
    paired_ratio,
    problem_table,
)
from elastic_core.strategies import BASELINE
from elastic_core.trajectory import BUDGET, CELL
from reports.content import HIGH, LOW, ReportTable
from reports.summary import BASE, ENDS, summarize
from reports.tables import CI, DIFFERENCE, estimate
from reports.verdict import readable, unreadable
from reports.wording import budget_text, ordered, plain, texts

ASKED_LENGTH = ("l1_exact", "l1_max")
"""Strategies whose prompt asks for a length of think_budget + solution_budget tokens."""

EQUAL = ", at equal tokens"
_DIMENSIONS = (("model",), ("strategy",), BUDGET)


def render_comparison(rows: pl.DataFrame) -> str:
    """The comparison of a trajectory table as plain text, for a terminal of any width.

    For each benchmark a line per cell, with its paired differences from the first model and from the first strategy at
    equal budget; and a line per curve of a model and strategy: anytime accuracy, differences at equal tokens, and the
    log-linear law. The first model is `base`, and the first strategy `vanilla`, or where the table has none the first
    by name. What makes a model's numbers say little follows at the end.
    """
    summary = summarize(rows)
    model, strategy = ordered(summary["model"], BASE)[0], ordered(summary["strategy"], BASELINE)[0]
    frames = {
        "cells": _cells(rows, summary, model, strategy),
        "accuracy over log2 tokens": _curves(rows, model, strategy),
    }
    signed = {"error", "slope", *(f"− {plain(first)}{at}" for at in ("", EQUAL) for first in (model, strategy))}
    parts: list[RenderableType] = []
    for benchmark in summary["benchmark"].unique().sort():
        for title, frame in frames.items():
            shown = frame.filter(benchmark=benchmark).drop("benchmark")
            shown = shown.select(column for column in shown if column.null_count() < shown.height)
            if shown.height:
                parts += [f"{benchmark}: {title}", terminal_table(shown, signed)]
    return render(*parts, texts("legends")["cells"], *unreadable(readable(rows)))


def render(*parts: RenderableType) -> str:
    """Tables as plain text for a terminal, as wide as they need: a folded figure is misread."""
    out = StringIO()
    console = Console(file=out, width=10_000, color_system=None, markup=False, emoji=False, highlight=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in printable(out.getvalue()).splitlines()) + "\n"


def terminal_table(frame: pl.DataFrame, signed: set[str]) -> Table:
    """A frame as of `ReportTable`. Signed estimates get a * where their interval excludes 0, else a space."""
    table = ReportTable("", "", "", frame, frozenset(signed))
    shown = Table(box=box.SIMPLE_HEAD)
    for name, numeric in zip(table.header, table.numeric, strict=True):
        shown.add_column(name, justify="right" if numeric else "left")
    for line, row in zip(table.lines, frame.iter_rows(named=True), strict=True):
        apart = {
            name for name in signed & {*row} if row[name] is not None and (row[name + LOW] > 0 or row[name + HIGH] < 0)
        }
        marks = ("*" if name in apart else " " if name in signed else "" for name in table.header)
        shown.add_row(*(place.text + mark for place, mark in zip(line, marks, strict=True)))
    return shown


def _cells(rows: pl.DataFrame, summary: pl.DataFrame, model: str, strategy: str) -> pl.DataFrame:
    """A line per cell; models of one strategy and budget stand below each other."""
    asked = rows.filter(pl.col("strategy").is_in(ASKED_LENGTH), *(pl.col(limit).is_not_null() for limit in BUDGET))
    errors = [(*key, *length_error(part).row) for key, part in asked.partition_by(CELL, as_dict=True).items()]
    error = estimates_table(errors, {name: summary.schema[name] for name in CELL}, ["error", "error_low", "error_high"])
    frame = summary.select(
        *CELL,
        budget=budget_text(),
        **estimate("accuracy (%)", "avg_at_k", CI),
        **estimate("as published (%)", "published_avg_at_k"),
        **estimate("tokens", "tokens_mean", scale=1),
        **{"problems × samples": pl.format("{} × {}", "num_problems", "num_samples")},
    ).join(error.select(*CELL, **estimate("error", "error", scale=1)), on=CELL, how="left", nulls_equal=True)
    by_model = paired_differences(rows, "model", model).filter(first=model)
    by_strategy = paired_differences(rows, "strategy", strategy).filter(first=strategy)
    frame = _beside(frame, by_model, "model", f"− {model}", CELL)
    frame = _beside(frame, by_strategy, "strategy", f"− {plain(strategy)}", CELL)
    first = pl.col("strategy") != strategy, "strategy", *BUDGET, pl.col("model") != model, "model"
    return _ordered(frame.sort(first, nulls_last=True).drop(BUDGET), "strategy", "budget", "model")


def _curves(rows: pl.DataFrame, model: str, strategy: str) -> pl.DataFrame:
    """A line per curve that spans a range of tokens."""
    place, lines = ["benchmark", "model", "strategy"], []
    for key, part in rows.partition_by(place, as_dict=True).items():
        if (curve := read_curve(part)).spans:
            law, tokens = log_law(part), 2**curve.log_tokens
            fit = None if law is None or law.lack_of_fit is None else f"{law.lack_of_fit:.2g}"
            counts = curve.num_cells, float(tokens.min()), float(tokens.max()), len(curve.problems)
            lines.append((*key, *counts, *(law.slope[:3] if law else (None,) * 3), law and f"{law.r2:.2f}", fit))
    sizes = {"cells": pl.Int64, "tokens from": pl.Float64, "tokens to": pl.Float64, "problems": pl.Int64}
    slope: dict[str, Any] = {f"slope{end}": pl.Float64 for end in ENDS} | {"R²": pl.String, "fit": pl.String}
    curves = pl.DataFrame(lines, {**dict.fromkeys(place, pl.String), **sizes, **slope}, orient="row")
    anytime = anytime_accuracy(problem_table(rows, ["score"], CELL)).sort("solution_budget", nulls_last=True)
    anytime = anytime.group_by(place).last().select(*place, **estimate("anytime (%)", "anytime"))
    frame = curves.select(*place, *sizes, **estimate("slope", "slope")).with_columns(curves["R²"], curves["fit"])
    frame = frame.join(anytime, on=place, how="left")
    frame = _beside(frame, area_differences(rows, "model", model), "model", f"− {model}{EQUAL}", place)
    frame = _beside(
        frame, area_differences(rows, "strategy", strategy), "strategy", f"− {plain(strategy)}{EQUAL}", place
    )
    first = pl.col("model") != model, "model", pl.col("strategy") != strategy, "strategy"
    return _ordered(frame.sort(first), "model", "strategy")


def _beside(frame: pl.DataFrame, pairs: pl.DataFrame, between: str, name: str, place: Sequence[str]) -> pl.DataFrame:
    """The differences of each line from the baseline, and the problems in common."""
    columns = {**estimate(name, "difference", DIFFERENCE), f"{name}, n": pl.col("num_problems")}
    found = pairs.rename({"second": between}).select(*place, **columns)
    return frame.join(found, on=place, how="left", nulls_equal=True)


def _ordered(frame: pl.DataFrame, *first: str) -> pl.DataFrame:
    return frame.select(*first, pl.exclude(first)).with_columns(pl.col("strategy").str.replace_all("_", " "))


def paired_cells(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Every pair of cells that belong together: of one benchmark, and equal in model, strategy and budget, except where
    each side has only one. ValueError without any, or when a score is missing or outside [0, 1].

    Columns: benchmark, model, strategy, budget (both, where they differ); accuracy_a, accuracy_b, difference (b minus
    a), tokens_a, tokens_b, token_ratio (b over a), each with its bounds NAME_low and NAME_high, null where there is
    none; num_problems (common ones), num_trajectories (of both). Sorted by benchmark, model, strategy and budget.
    """
    # Where a side has several values, it must be said which belong together.
    several = [names for names in _DIMENSIONS if max(side.select(names).n_unique() for side in (first, second)) > 1]
    match = ["benchmark", *(name for names in several for name in names)]
    ours, theirs = (rows.partition_by(match, as_dict=True) for rows in (first, second))
    pairs = [pair for key in ours if key in theirs and (pair := _pair(ours[key], theirs[key])) is not None]
    if not pairs:
        raise ValueError(f"no two cells agree in {', '.join(match)} and have a problem in common")
    table = pl.DataFrame(pairs, infer_schema_length=None)
    return table.sort("benchmark", "model", "strategy", *BUDGET, nulls_last=True).drop(BUDGET)


def _pair(a: pl.DataFrame, b: pl.DataFrame) -> dict[str, Any] | None:
    """One row of the table; None without a problem in common."""
    a, b = common_problems(a, b)
    if a.is_empty():
        return None
    ours, theirs = (problem_table(rows, ["score", "tokens"]) for rows in (a, b))
    difference = score_difference(theirs, ours)
    # A model that never says a word has no tokens to divide by.
    ratio = paired_ratio(b, a, "tokens") if ours["tokens"].sum() else None
    cells = [{name: rows[name][0] for name in CELL} for rows in (a, b)]
    budgets = [Budget(cell["think_budget"], cell["solution_budget"]) for cell in cells]
    return {
        "benchmark": cells[0]["benchmark"],
        "model": _both(*(cell["model"] for cell in cells)),
        "strategy": _both(*(cell["strategy"] for cell in cells)),
        "budget": _both(*map(str, budgets)),
        **mean_score(ours).columns("accuracy_a"),
        **mean_score(theirs).columns("accuracy_b"),
        **difference.columns("difference"),
        **mean_tokens(ours, "tokens").columns("tokens_a"),
        **mean_tokens(theirs, "tokens").columns("tokens_b"),
        **(ratio.columns("token_ratio") if ratio else dict.fromkeys(f"token_ratio{end}" for end in ENDS)),
        "num_problems": difference.num_problems,
        "num_trajectories": difference.num_trajectories,
        **{name: cells[0][name] for name in BUDGET},
    }


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} → {b}"


def render_pairs(table: pl.DataFrame, first: str, second: str) -> str:
    """The table of `paired_cells` as plain text, for a terminal of any width; `first` and `second` name A and B."""
    shown = table.select(
        *("benchmark", "model", "strategy", "budget"),
        **estimate("A (%)", "accuracy_a"),
        **estimate("B (%)", "accuracy_b"),
        **estimate("B − A", "difference"),
        **estimate("tokens A", "tokens_a", scale=1),
        **estimate("tokens B", "tokens_b", scale=1),
        **estimate("B / A (%)", "token_ratio"),
        n="num_problems",
    )
    return render(f"A is {first}", f"B is {second}", terminal_table(shown, {"B − A"}), texts("legends")["pairs"])
