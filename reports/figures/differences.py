"""Paired differences between models and between strategies, and what the next tokens buy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from elastic_core.statistics.estimates import FREE
from reports.content import ReportFigure
from reports.drawing import (
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
    log2_axis,
    place_on,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 0.7
"""Of the bars at one budget, as a share of its room."""


def model_differences(differences: pl.DataFrame, sheet: Sheet, baseline: str) -> ReportFigure | None:
    """Every model against `baseline` under the same strategy and budget. None when there is no pair.

    Args:
        differences: of `elastic_core.statistics.paired_differences`, between models.
    """
    title = f"Paired difference from {baseline}, at equal strategy and budget"
    return _differences(differences, sheet, "model_differences", title, baseline, "strategy")


def strategy_differences(differences: pl.DataFrame, sheet: Sheet, baseline: str) -> ReportFigure | None:
    """Every strategy against `baseline` of the same model at the same budget. None when there is no pair.

    Args:
        differences: of `elastic_core.statistics.paired_differences`, between strategies.
    """
    title = f"Paired difference from {plain(baseline)}, of the same model at equal budget"
    return _differences(differences, sheet, "strategy_differences", title, baseline, "model")


def marginal(gains: pl.DataFrame, sheet: Sheet) -> ReportFigure | None:
    """Points of accuracy per 100 tokens more, between neighbouring budgets. None when no two budgets are neighbours.

    Args:
        gains: of `elastic_core.statistics.marginal_accuracy`.
    """
    bounded, left_out = distinct(gains.filter(pl.col("low").is_not_null()))
    if bounded.is_empty():
        return None
    caption = (
        "Each point: two neighbouring budgets, at the mean of their tokens; bars: 95 % intervals, problems resampled. "
        "An interval may run out of the frame: where tokens hardly grow, the ratio is hardly known."
        f"{left_out}"
    )
    target = figure_files(sheet, "marginal_accuracy", "Accuracy bought by 100 tokens more", caption)
    colours = sheet.colours
    middle = pl.mean_horizontal("tokens", "next_tokens")
    low, high = (100 * bound for bound in (min(0.0, *bounded["gain"]), max(0.0, *bounded["gain"])))
    margin = 0.3 * ((high - low) or 1.0)  # Where no gain differs from 0 there is still an axis.
    frame = low - margin, high + margin
    with benchmark_panels(bounded, target, bounded) as panels:
        for axes, part in panels:
            axes.axhline(0, color=INK, lw=0.8)
            lines = (
                part.with_columns(x=middle).sort("x").partition_by("model", "strategy", "solution_budget", as_dict=True)
            )
            for (model, strategy, solution), line in sorted(lines.items(), key=lambda item: legend_order(item[0])):
                label = f"{model}, {plain(strategy)} (s = {limit(solution)})"
                _draw(axes, line, line["x"], "gain", model, strategy, colours, label)
            log2_axis(axes, bounded["tokens"].min(), bounded["next_tokens"].max())  # type: ignore[arg-type]
            axes.set_ylim(*frame)
            axes.set_xlabel("mean tokens sampled, thinking + solution")
            if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                axes.set_ylabel("points per 100 tokens")
    return target


def _differences(
    differences: pl.DataFrame, sheet: Sheet, name: str, title: str, baseline: str, same: str
) -> ReportFigure | None:
    pairs = differences.filter(first=baseline)
    if pairs.is_empty():
        return None
    pairs = pairs.rename({"second": "strategy" if same == "model" else "model"})
    pairs, left_out = distinct(pairs) if same == "strategy" else (pairs, "")
    caption = "Bars: 95 % intervals of the paired difference, over the problems that both have; above 0: better."
    target = figure_files(sheet, name, title, caption + left_out)
    colours, ladder = sheet.colours, ladder_of(pairs)
    lines = sorted(pairs.select("model", "strategy", "solution_budget").unique().rows(), key=legend_order)
    # Beside each other, so that intervals do not hide each other; those without a budget have a place of their own.
    shifts = _shifts([line for line in lines if line[1] == FREE]) | _shifts([line for line in lines if line[1] != FREE])
    with benchmark_panels(pairs, target, pairs) as panels:
        for axes, part in panels:
            axes.axhline(0, color=INK, lw=0.8)
            for model, strategy, solution in lines:
                line = part.filter(
                    pl.col("solution_budget").eq_missing(pl.lit(solution)), model=model, strategy=strategy
                ).sort("think_budget", nulls_last=True)
                x = line.select(place_on(ladder) + shifts[model, strategy, solution]).to_series()
                label = f"{model}, {plain(strategy)} (s = {limit(solution)})"
                _draw(axes, line, x, "difference", model, strategy, colours, label, joined=False)
            budget_axis(axes, ladder)
            # What stands between two lines is at one budget.
            axes.grid(False, axis="x")
            for place in range(len(ladder) - 1):
                axes.axvline(place + 0.5, color="0.85", lw=0.8, zorder=0)
            if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                axes.set_ylabel("difference (points)")
    return target


def _shifts(lines: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], float]:
    """How far each line stands from the middle of its budget's place."""
    steps = max(1, len(lines) - 1)
    return {line: _WIDTH * (i - (len(lines) - 1) / 2) / steps for i, line in enumerate(lines)}


def _draw(
    axes: Axes,
    line: pl.DataFrame,
    x: pl.Series,
    column: str,
    model: str,
    strategy: str,
    colours: dict[str, str],
    label: str,
    joined: bool = True,
) -> None:
    """Values in points with their intervals."""
    style, marker, white = STYLES.get(strategy, OTHER_STYLE)
    below, above = line[column] - line["low"], line["high"] - line[column]
    axes.errorbar(
        x,
        100 * line[column],
        yerr=100 * np.stack([below, above]),
        ls=style if joined else "",
        marker=marker,
        ms=4.5,
        lw=1.4,
        elinewidth=1.1,
        color=lighter(colours[model], white),
        label=label,
    )
