"""Paired differences between models and between strategies, and what the next tokens buy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from elastic_core.statistics.estimates import FREE
from reports.content import ReportFigure
from reports.figures import (
    INK,
    TOKENS_LABEL,
    Line,
    Sheet,
    benchmark_panels,
    budget_axis,
    distances,
    distinct,
    figure_files,
    ladder_of,
    lines_of,
    log2_axis,
    place_on,
    y_label,
)
from reports.wording import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 0.7
"""Of the bars at one budget, as a share of its room."""


def paired(differences: pl.DataFrame, sheet: Sheet, between: str, baseline: str) -> ReportFigure | None:
    """Models against `baseline` under the same strategy, or strategies of the same model, at equal budget. None when
    there is no pair.

    Args:
        differences: of `elastic_core.statistics.accuracy.paired_differences`.
        between: "model" or "strategy".
    """
    pairs = differences.filter(first=baseline).rename({"second": between})
    if pairs.is_empty():
        return None
    if between == "model":
        pairs, left_out = distinct(pairs)
        title = f"Paired difference from {baseline}, at equal strategy and budget"
    else:
        left_out = ""
        title = f"Paired difference from {plain(baseline)}, of the same model at equal budget"
    caption = "Bars: 95 % intervals of the paired difference, over the problems that both have; above 0: better."
    target = figure_files(sheet, f"{between}_differences", title, caption + left_out)
    ladder = ladder_of(pairs)
    with benchmark_panels(pairs, target, pairs) as panels:
        lines = lines_of(pairs.sort("think_budget", nulls_last=True), sheet)
        shifts = _shifts(lines)
        for axes, part in panels:
            axes.axhline(0, color=INK, lw=0.8)
            for line in lines:
                cells = line.cells.filter(benchmark=part["benchmark"][0])
                _draw(axes, line, cells, place_on(ladder) + shifts[line.label], "difference", joined=False)
            budget_axis(axes, ladder)
            # What stands between two lines is at one budget.
            axes.grid(False, axis="x")
            for place in range(len(ladder) - 1):
                axes.axvline(place + 0.5, color="0.85", lw=0.8, zorder=0)
            y_label(axes, "difference (points)")
    return target


def marginal(gains: pl.DataFrame, sheet: Sheet) -> ReportFigure | None:
    """Points of accuracy per 100 tokens more, between neighbouring budgets. None when no two budgets are neighbours."""
    bounded, left_out = distinct(gains.filter(pl.col("low").is_not_null()))
    if bounded.is_empty():
        return None
    caption = (
        "Each point: two neighbouring budgets, at the mean of their tokens; bars: 95 % intervals, problems resampled. "
        "An interval may run out of the frame: where tokens hardly grow, the ratio is hardly known."
        f"{left_out}"
    )
    target = figure_files(sheet, "marginal_accuracy", "Accuracy bought by 100 tokens more", caption)
    middle = pl.mean_horizontal("tokens", "next_tokens")
    low, high = (100 * bound for bound in (min(0.0, *bounded["gain"]), max(0.0, *bounded["gain"])))
    margin = 0.3 * ((high - low) or 1.0)  # Where no gain differs from 0 there is still an axis.
    frame = low - margin, high + margin
    with benchmark_panels(bounded, target, bounded) as panels:
        for axes, part in panels:
            axes.axhline(0, color=INK, lw=0.8)
            for line in lines_of(part.sort(middle), sheet):
                _draw(axes, line, line.cells, middle, "gain", joined=True)
            log2_axis(axes, bounded["tokens"].min(), bounded["next_tokens"].max())  # type: ignore[arg-type]
            axes.set_ylim(*frame)
            axes.set_xlabel(TOKENS_LABEL)
            y_label(axes, "points per 100 tokens")
    return target


def _shifts(lines: list[Line]) -> dict[str, float]:
    """How far each line stands from the middle of its budget's place, by label: beside each other, so that intervals do
    not hide each other. Those without a budget have a place of their own."""
    shifts: dict[str, float] = {}
    for free in (True, False):
        labels = [line.label for line in lines if (line.strategy == FREE) == free]
        steps = max(1, len(labels) - 1)
        shifts |= {label: _WIDTH * (i - (len(labels) - 1) / 2) / steps for i, label in enumerate(labels)}
    return shifts


def _draw(axes: Axes, line: Line, cells: pl.DataFrame, x: pl.Expr, column: str, joined: bool) -> None:
    """Values in points with their intervals."""
    axes.errorbar(
        cells.select(x).to_series(),
        100 * cells[column],
        yerr=100 * distances(cells, column, "low", "high"),
        ls=line.style if joined else "",
        marker=line.marker,
        ms=4.5,
        lw=1.4,
        elinewidth=1.1,
        color=line.colour,
        label=line.label,
    )
