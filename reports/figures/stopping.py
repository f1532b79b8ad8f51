"""Stop rules against fixed budgets: accuracy over cost."""

from __future__ import annotations

import numpy as np
import polars as pl

from elastic_core.statistics.stop_frontier import BUDGETED, ORACLE, best_rules, hull
from reports import figures as plot
from reports.content import ReportFigure

_POINTS = 200  # Of a line that is straight in cost, on an axis that is not.


def stop_frontier(found: pl.DataFrame, sheet: plot.Sheet, unit: str) -> ReportFigure | None:
    """The frontier of fixed budgets and that of stop rules (`elastic_core.statistics.stop_frontier.outcomes`), with
    model and benchmark, a panel per benchmark. None where no rule can be tried."""
    if found.is_empty():
        return None
    caption = (
        f"x-axis: {unit}, mean per response, probes charged in full. Line: fixed budgets; dashed: the best mixtures of "
        "two of them. Diamonds: the stop rules that no other one beats in both, as measured, with the interval of "
        "their gain over the mixture at equal cost, which holds for all rules together. Star: no budget. Cross: the "
        "sample's best answer, as early as it comes."
    )
    target = plot.figure_files(sheet, "stop_rules", "Stop rules against fixed budgets", caption)
    with plot.panels_of(found, target, found) as (panels, _):
        for axes, part in panels:
            colour = sheet.colours[part["model"][0]]
            fixed, rules, best = part.filter(kind=BUDGETED), best_rules(part), part.filter(kind=ORACLE)
            limited = fixed.filter(pl.col("budget").is_not_null())
            free = fixed.filter(pl.col("budget").is_null())
            axes.plot(fixed["cost"], 100 * fixed["accuracy"], "-", c=colour, lw=1.2)
            axes.plot(limited["cost"], 100 * limited["accuracy"], "o", ms=4, c=colour, label="fixed budgets")
            axes.plot(free["cost"], 100 * free["accuracy"], "*", ms=11, c=colour, label="no budget")
            costs, means = fixed["cost"].to_numpy(), fixed["accuracy"].to_numpy()
            corners = hull(costs, means)
            between = np.linspace(costs[corners[0]], costs[corners[-1]], _POINTS)
            mixed = np.interp(between, costs[corners], means[corners])
            axes.plot(between, 100 * mixed, "--", c=colour, lw=1, label="their mixtures")
            bars = plot.distances(rules, "gain", "gain_low", "gain_high")
            axes.errorbar(
                rules["cost"], 100 * rules["accuracy"], 100 * bars, fmt="D", ms=4, c=plot.INK, lw=0.9,
                label="stop rules",
            )  # fmt: skip
            axes.plot(best["cost"], 100 * best["accuracy"], "x", ms=7, c=plot.INK, label="best of each sample")
            plot.log2_axis(axes, min(part["cost"]), max(part["cost"]))
            axes.set_xlabel(f"{unit}, mean per response")
            plot.accuracy_axis(axes)
    return target
