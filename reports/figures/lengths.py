"""Tokens by phase (Elastic Reasoning, Figure 7), and accuracy over the share of forced thoughts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from elastic_core.statistics.estimates import FREE
from elastic_core.trajectory import CELL
from reports.content import ReportFigure
from reports.drawing import (
    BAND,
    OTHER_STYLE,
    STYLES,
    Sheet,
    accuracy_axis,
    benchmark_panels,
    distinct,
    figure_files,
    legend_order,
    lighter,
    limit,
    model_panels,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Fill and outline of a phase, apart from the colours of the two models.
PHASES = {"thinking": ("think_tokens", "#56B4E9", "#1F6F9F"), "solution": ("solution_tokens", "#E69F00", "#8A5F00")}
_QUANTILES = {"whislo": 0.05, "q1": 0.25, "med": 0.5, "q3": 0.75, "whishi": 0.95}


def tokens_by_phase(rows: pl.DataFrame, sheet: Sheet, strategy: str) -> ReportFigure | None:
    """How many tokens each phase took under one strategy, per budget: a panel per benchmark and model.

    Unconstrained responses, where there are any, stand at ∞. None when the table has no rows of the strategy.
    """
    if strategy not in rows["strategy"]:
        return None
    data = _distributions(rows.filter(pl.col("strategy").is_in([strategy, FREE])))
    budgets = data["think_budget"].unique().sort(nulls_last=True).to_list()
    caption = "Box: quartiles and median; whiskers: 5th to 95th percentile. Under each t: mean forced tokens."
    target = figure_files(sheet, "tokens_by_phase", f"Tokens by phase ({plain(strategy)})", caption)
    legend: dict[str, Any] = {}
    with model_panels(data, target, sheet, legend) as panels:
        for axes, cells in panels:
            legend |= _phase_boxes(axes, cells, budgets)
            axes.set_xlabel("thinking budget t (tokens; ∞: unconstrained)")
            if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                axes.set_ylabel("tokens per trajectory")
    return target


def forced_vs_accuracy(summary: pl.DataFrame, sheet: Sheet) -> ReportFigure | None:
    """avg@k over the share of thoughts that we had to close, a line per model and strategy, from its smallest budget
    to its largest. None when nothing was ever forced."""
    closing = pl.col("strategy").is_in(summary.filter(pl.col("forced_fraction") > 0)["strategy"].to_list())
    cells, left_out = distinct(summary.filter(closing, pl.col("think_budget").is_not_null()))
    if cells.is_empty():
        return None
    caption = f"{BAND} A line goes from the smallest budget (most thoughts closed by us) to the largest.{left_out}"
    target = figure_files(sheet, "forced_vs_accuracy", "Accuracy over the share of forced thoughts", caption)
    colours = sheet.colours
    columns = [*CELL, "num_problems", "num_samples"]
    shares = ["forced_fraction", "forced_fraction_low", "forced_fraction_high", "avg_at_k", "ci_low", "ci_high"]
    with benchmark_panels(cells, target, cells.select(*columns, *shares)) as panels:
        for axes, part in panels:
            lines = part.sort("think_budget").partition_by("model", "strategy", "solution_budget", as_dict=True)
            for (model, strategy, solution), line in sorted(lines.items(), key=lambda item: legend_order(item[0])):
                style, marker, white = STYLES.get(strategy, OTHER_STYLE)
                x, y = 100 * line["forced_fraction"].to_numpy(), 100 * line["avg_at_k"].to_numpy()
                axes.errorbar(
                    x,
                    y,
                    xerr=_distances(line, "forced_fraction", "forced_fraction_low", "forced_fraction_high"),
                    yerr=_distances(line, "avg_at_k", "ci_low", "ci_high"),
                    ls=style,
                    marker=marker,
                    ms=5,
                    lw=1.4,
                    elinewidth=0.7,
                    color=lighter(colours[model], white),
                    label=f"{model}, {plain(strategy)} (s = {limit(solution)})",
                )
            axes.set_xlim(103, -3)
            axes.set_xlabel("thoughts closed by us (%)")
            accuracy_axis(axes)
    return target


def _distances(line: pl.DataFrame, mean: str, low: str, high: str) -> np.ndarray:
    """Of an interval's ends from its mean, in percent, shape (2, cells)."""
    return 100 * np.stack([line[mean] - line[low], line[high] - line[mean]])


def _distributions(rows: pl.DataFrame) -> pl.DataFrame:
    """A row per model, benchmark and thinking budget: counts, mean forced tokens, quantiles of both phases."""
    return (
        rows.group_by("benchmark", "model", "think_budget")
        .agg(
            num_problems=pl.col("problem").n_unique(),
            num_trajectories=pl.len(),
            forced_tokens=pl.col("forced_tokens").mean(),
            **{
                f"{phase}_{name}": pl.col(column).quantile(share, "linear")
                for phase, (column, _, _) in PHASES.items()
                for name, share in _QUANTILES.items()
            },
        )
        .with_columns(num_samples=pl.col("num_trajectories") // pl.col("num_problems"))
        .sort("benchmark", "model", "think_budget", nulls_last=True)
    )


def _phase_boxes(axes: Axes, cells: pl.DataFrame, budgets: list[int | None]) -> dict[str, Any]:
    """Two boxes per budget, thinking left and solution right; the legend's entries."""
    entries: dict[str, Any] = {}
    places = [budgets.index(t) for t in cells["think_budget"]]
    for shift, (phase, (_, fill, edge)) in zip((-0.19, 0.19), PHASES.items(), strict=True):
        boxes = axes.bxp(
            [{name: row[f"{phase}_{name}"] for name in _QUANTILES} for row in cells.iter_rows(named=True)],
            positions=[place + shift for place in places],
            widths=0.32,
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": fill, "edgecolor": edge, "linewidth": 0.8},
            # A phase that always spends its budget is only this line: it must carry the colour.
            medianprops={"color": edge, "linewidth": 2.4},
            whiskerprops={"color": edge},
            capprops={"color": edge},
            manage_ticks=False,
        )
        entries[phase] = boxes["boxes"][0]
    forced = dict(zip(places, cells["forced_tokens"], strict=True))
    labels = [f"{limit(t)}\n{f'{forced[i]:.2f}' if i in forced else '–'}" for i, t in enumerate(budgets)]
    axes.set_xticks(range(len(budgets)), labels)
    axes.set_xlim(-0.6, len(budgets) - 0.4)
    axes.axhline(0, color="none")  # brings 0 into view
    return entries
