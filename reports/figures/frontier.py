"""The Pareto frontier of accuracy and cost: the cells that no other one beats in both."""

from __future__ import annotations

import polars as pl

from elastic_core.trajectory import CELL
from reports.content import ReportFigure
from reports.figures import INK, Sheet, accuracy_axis, benchmark_panels, distances, figure_files, lines_of, log2_axis
from reports.wording import budget_text


def pareto_frontier(priced: pl.DataFrame, advised: pl.DataFrame, sheet: Sheet, unit: str) -> ReportFigure | None:
    """avg@k over the mean cost of a response, a panel per benchmark. None of a single cell.

    Args:
        priced: of `reports.tables.priced`.
        advised: of `elastic_core.statistics.which_budget.advised_budgets`; those whose test holds are marked.
        unit: of costs.
    """
    if priced.height < 2:
        return None
    caption = (
        f"x-axis: {unit}, mean per response. Line and bars: the frontier, that is the cells, of any model and "
        "strategy, that no other cell beats in both accuracy and cost as measured, with 95 % intervals of both. Other "
        "cells are faint."
    )
    holds = advised.filter(verdict="holds")
    if not holds.is_empty():
        caption += " Ring: the budget that is advised for a model."
    target = figure_files(sheet, "pareto_frontier", "Accuracy and cost: the frontier", caption)
    values = ["cost", "cost_low", "cost_high", "avg_at_k", "ci_low", "ci_high", "num_problems", "num_samples"]
    with benchmark_panels(priced, target, priced.select(*CELL, *values, "frontier")) as panels:
        for axes, cells in panels:
            for line in lines_of(cells, sheet):
                axes.plot(
                    line.cells["cost"], 100 * line.cells["avg_at_k"], line.style.marker, ms=4, c=line.colour, alpha=0.35
                )
                best = line.cells.filter("frontier")
                axes.errorbar(
                    best["cost"],
                    100 * best["avg_at_k"],
                    xerr=distances(best, "cost", "cost_low", "cost_high"),
                    yerr=100 * distances(best, "avg_at_k", "ci_low", "ci_high"),
                    ls="",
                    marker=line.style.marker,
                    ms=6,
                    c=line.colour,
                    elinewidth=0.9,
                    label=line.label if best.height else None,
                )
            frontier = cells.filter("frontier").sort("cost")
            axes.step(frontier["cost"], 100 * frontier["avg_at_k"], where="post", c=INK, lw=0.9, zorder=1)
            ring = cells.join(holds, on=CELL, how="semi", nulls_equal=True)
            axes.plot(ring["cost"], 100 * ring["avg_at_k"], "o", ms=13, mfc="none", mec=INK, mew=1.3, zorder=6)
            for cell in ring.with_columns(text=budget_text()).iter_rows(named=True):
                place = cell["cost"], 100 * cell["avg_at_k"]
                axes.annotate(cell["text"], place, (8, -12), textcoords="offset points", size=8)
            log2_axis(axes, min(cells["cost"]), max(cells["cost"]))
            axes.set_xlabel(f"{unit}, mean per response")
            accuracy_axis(axes)
    return target
