"""Paired differences between models and between strategies."""

from __future__ import annotations

from typing import Any

import polars as pl

from elastic_core.strategies import BASELINE, FREE
from reports import figures as plot
from reports.content import ReportFigure
from reports.wording import plain

_WIDTH = 0.7  # Of the bars at one budget, as a share of its room.


def paired(
    differences: pl.DataFrame, sheet: plot.Sheet, between: str, baseline: str, note: str = ""
) -> ReportFigure | None:
    """Models against `baseline` under the same strategy, a panel per benchmark, or strategies of the same model, a
    panel per benchmark and model; at equal budget (`paired_differences` between "model" or "strategy"). The caption
    ends in `note`. None without a pair."""
    pairs = differences.filter(first=baseline).rename({"second": between})
    if pairs.is_empty():
        return None
    if between == "model":
        pairs, left_out = plot.distinct(pairs)
        words: dict[str, Any] = {"left_out": left_out}
    else:
        words = {"vanilla": BASELINE in {baseline, *pairs["strategy"]}}
    target = plot.figure_files(sheet, f"{between}_differences", baseline=plain(baseline), note=note, **words)
    ladder = plot.ladder_of(pairs)
    with plot.panels_of(pairs, target, pairs, None if between == "model" else sheet) as (panels, _):
        for axes, part in panels:
            axes.axhline(0, color=plot.INK, lw=0.8)
            lines = plot.lines_of(part.sort("think_budget", nulls_last=True), sheet)
            # Side by side at each budget, so that intervals do not hide each other; those without a budget alone.
            for free in (True, False):
                of_kind = [line for line in lines if (line.strategy == FREE) == free]
                for i, line in enumerate(of_kind):
                    shift = _WIDTH * (i - (len(of_kind) - 1) / 2) / max(1, len(of_kind) - 1)
                    x, size = plot.place_on(ladder) + shift, 3.2 * line.style.size
                    bounds = "difference", "low", "high"
                    plot.draw_points(axes, line, line.cells, x, bounds, ms=size, elinewidth=0.9)
            plot.budget_axis(axes, ladder)
            # What stands between two lines is at one budget.
            axes.grid(False, axis="x")
            for place in range(len(ladder) - 1):
                axes.axvline(place + 0.5, color="0.85", lw=0.8, zorder=0)
            plot.y_label(axes, "difference (points)")
    return target
