"""Where a model spends its thinking, and how much each problem needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from reports.content import ReportFigure
from reports.drawing import (
    BAND,
    INK,
    OTHER_STYLE,
    STYLES,
    Sheet,
    benchmark_panels,
    budget_axis,
    distinct,
    figure_files,
    ladder_of,
    legend_order,
    lighter,
    limit,
    model_panels,
    place_on,
    plain,
)

PARTS = {"needed": "#56B4E9", "overthinking": "#E69F00", "futile": "#9A9A9A"}
"""Thinking tokens by what they went into, from below."""


def thinking_spent(spent: pl.DataFrame, sheet: Sheet, strategy: str) -> ReportFigure | None:
    """What thinking tokens went into under one strategy, per budget; a panel per benchmark and model. None when the
    strategy has no complete ladder.

    Args:
        spent: of `elastic_core.statistics.thinking_spent`.
    """
    data = spent.filter(strategy=strategy)
    if data.is_empty():
        return None
    caption = (
        "Needed: up to the smallest sufficient budget of each problem; overthinking: past it; futile: on problems that "
        "no budget solves. Bars: 95 % intervals of each part. At the top: starved, the share of thoughts cut below "
        "what their problem needs."
    )
    title = f"Where the thinking goes ({plain(strategy)})"
    target = figure_files(sheet, "thinking_spent", title, caption)
    # Ladders of several solution budgets would stand on each other: the largest is shown.
    largest = pl.col("solution_budget").max().over("benchmark", "model")
    data = data.filter(pl.col("solution_budget").eq_missing(largest))
    ladder = ladder_of(data)
    legend: dict[str, Any] = {}
    with model_panels(data, target, sheet, legend) as panels:
        for axes, cells in panels:
            x = cells.select(place_on(ladder)).to_series().to_numpy()
            height = 0 * x
            for i, (part, colour) in enumerate(PARTS.items()):
                values = cells[part].to_numpy()
                legend[part] = axes.bar(x, values, bottom=height, width=0.72, color=colour)
                height = height + values
                bounded = cells.with_columns(x=x + 0.2 * (i - 1), top=height).filter(
                    pl.col(part) > 0, pl.col(f"{part}_low").is_not_null()
                )
                below, above = bounded[part] - bounded[f"{part}_low"], bounded[f"{part}_high"] - bounded[part]
                error = np.stack([below, above])
                axes.errorbar(bounded["x"], bounded["top"], yerr=error, ls="", c=INK, elinewidth=0.9)
            for place, share in zip(x, cells["starved"], strict=True):
                top = axes.get_xaxis_transform()
                axes.text(place, 0.99, f"{100 * share:.0f} %", transform=top, ha="center", va="top", size=8)
            axes.margins(y=0.15)
            budget_axis(axes, ladder)
            if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                axes.set_ylabel("thinking tokens per trajectory")
    return target


def sufficient_budgets(spent: pl.DataFrame, sheet: Sheet) -> ReportFigure | None:
    """The share of problems whose smallest sufficient budget is at most t, per model and strategy. None without any.

    Args:
        spent: of `elastic_core.statistics.thinking_spent`.
    """
    if spent.is_empty():
        return None
    spent, left_out = distinct(spent)
    caption = (
        f"{BAND} A budget suffices where at least half of a problem's samples are right; ∞: unconstrained.{left_out}"
    )
    target = figure_files(sheet, "sufficient_budgets", "Problems solved within a thinking budget", caption)
    ladder = ladder_of(spent)
    columns = ["solved_within", "solved_within_low", "solved_within_high", "num_problems"]
    data = spent.select("model", "benchmark", "strategy", "solution_budget", "think_budget", *columns)
    with benchmark_panels(data, target, data) as panels:
        for axes, part in panels:
            lines = part.sort("think_budget", nulls_last=True).partition_by(
                "model", "strategy", "solution_budget", as_dict=True
            )
            for (model, strategy, solution), line in sorted(lines.items(), key=lambda item: legend_order(item[0])):
                style, marker, white = STYLES.get(strategy, OTHER_STYLE)
                colour = lighter(sheet.colours[model], white)
                x = line.select(place_on(ladder)).to_series()
                low, high = 100 * line["solved_within_low"], 100 * line["solved_within_high"]
                axes.fill_between(x, low, high, color=colour, alpha=0.12, lw=0)
                label = f"{model}, {plain(strategy)} (s = {limit(solution)})"
                axes.plot(x, 100 * line["solved_within"], ls=style, marker=marker, ms=5, lw=1.6, c=colour, label=label)
            budget_axis(axes, ladder)
            axes.set_ylim(-3, 103)
            if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                axes.set_ylabel("problems with b* at most t (%)")
    return target
