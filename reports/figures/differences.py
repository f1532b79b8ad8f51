"""Paired differences between models and between strategies."""

from __future__ import annotations

from typing import Any

import polars as pl

from elastic_core.strategies import BASELINE, FREE
from reports import figures as plot
from reports.content import ReportFigure
from reports.wording import plain

_WIDTH = 0.7  # Of the bars at one budget, as a share of its room.


def paired(differences: pl.DataFrame, sheet: plot.Sheet, between: str, baseline: str) -> ReportFigure | None:
    """Models against `baseline` under the same strategy, or strategies of the same model, at equal budget
    (`paired_differences` between "model" or "strategy"). None without a pair."""
    pairs = differences.filter(first=baseline).rename({"second": between})
    if pairs.is_empty():
        return None
    if between == "model":
        pairs, left_out = plot.distinct(pairs)
        words: dict[str, Any] = {"left_out": left_out}
    else:
        words = {"vanilla": BASELINE in {baseline, *pairs["strategy"]}}
    target = plot.figure_files(sheet, f"{between}_differences", baseline=plain(baseline), **words)
    ladder = plot.ladder_of(pairs)
    with plot.panels_of(pairs, target, pairs) as (panels, _):
        lines = plot.lines_of(pairs.sort("think_budget", nulls_last=True), sheet)
        # How far each line stands from the middle of its budget's place, by label: side by side, so that intervals
        # do not hide each other. Those without a budget stand alone.
        shifts: dict[str, float] = {}
        for free in (True, False):
            labels = [line.label for line in lines if (line.strategy == FREE) == free]
            steps = max(1, len(labels) - 1)
            shifts |= {label: _WIDTH * (i - (len(labels) - 1) / 2) / steps for i, label in enumerate(labels)}
        for axes, part in panels:
            axes.axhline(0, color=plot.INK, lw=0.8)
            for line in lines:
                cells = line.cells.filter(benchmark=part["benchmark"][0])
                x, size = plot.place_on(ladder) + shifts[line.label], 4.5 * line.style.size
                plot.draw_points(axes, line, cells, x, ("difference", "low", "high"), ms=size, lw=1.4, elinewidth=1.1)
            plot.budget_axis(axes, ladder)
            # What stands between two lines is at one budget.
            axes.grid(False, axis="x")
            for place in range(len(ladder) - 1):
                axes.axvline(place + 0.5, color="0.85", lw=0.8, zorder=0)
            plot.y_label(axes, "difference (points)")
    return target
