"""Tokens by phase (Elastic Reasoning, Figure 7), by use of the thinking, and by need of the problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from elastic_core.strategies import FREE
from elastic_core.trajectory import CELL
from reports import figures as plot
from reports.content import ReportFigure
from reports.wording import limit, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Column of a phase, and the share of white in the model's colour that fills it.
PHASES = {"thinking": ("think_tokens", 0.85), "solution": ("solution_tokens", 0.45)}
_QUANTILES = {"whislo": 0.05, "q1": 0.25, "med": 0.5, "q3": 0.75, "whishi": 0.95}

PARTS = {"needed": 0.0, "overthinking": 0.5, "futile": 0.85}
"""Thinking tokens by what they went into, from below, with the share of white."""


def tokens_by_phase(rows: pl.DataFrame, sheet: plot.Sheet, strategy: str) -> ReportFigure | None:
    """How many tokens each phase took under one strategy, per budget: a panel per benchmark and model. Unconstrained
    responses stand at ∞. None when the table has no rows of the strategy."""
    if strategy not in rows["strategy"]:
        return None
    # Counts, mean forced tokens, quantiles of both phases.
    data = (
        rows.filter(pl.col("strategy").is_in([strategy, FREE]))
        .group_by("benchmark", "model", "think_budget")
        .agg(
            num_problems=pl.col("problem").n_unique(),
            num_trajectories=pl.len(),
            forced_tokens=pl.col("forced_tokens").mean(),
            **{
                f"{phase}_{name}": pl.col(column).quantile(share, "linear")
                for phase, (column, _) in PHASES.items()
                for name, share in _QUANTILES.items()
            },
        )
        .with_columns(num_samples=pl.col("num_trajectories") // pl.col("num_problems"))
        .sort("benchmark", "model", "think_budget", nulls_last=True)
    )
    budgets = plot.ladder_of(data)
    target = plot.figure_files(sheet, "tokens_by_phase", strategy=plain(strategy))
    with plot.panels_of(data, target, data, sheet) as (panels, legend):
        for axes, cells in panels:
            _phase_boxes(axes, cells, budgets, sheet.colours[cells["model"][0]])
            legend.update(_legend({phase: white for phase, (_, white) in PHASES.items()}))
            axes.set_xlabel("thinking budget t (tokens)")
            plot.y_label(axes, "tokens per trajectory")
    return target


def thinking_spent(spent: pl.DataFrame, sheet: plot.Sheet, strategy: str) -> ReportFigure | None:
    """What thinking tokens went into under one strategy, per budget; a panel per benchmark and model. None when the
    strategy has no complete ladder."""
    data = spent.filter(strategy=strategy)
    if data.is_empty():
        return None
    target = plot.figure_files(sheet, "thinking_spent", strategy=plain(strategy))
    # Ladders of several solution budgets would stand on each other: the largest is shown.
    largest = pl.col("solution_budget").max().over("benchmark", "model")
    data = data.filter(pl.col("solution_budget").eq_missing(largest))
    ladder = plot.ladder_of(data)
    data = _by_responses(data)
    with plot.panels_of(data, target, data, sheet) as (panels, legend):
        for axes, cells in panels:
            x = cells.select(plot.place_on(ladder)).to_series().to_numpy()
            height, colour = 0 * x, sheet.colours[cells["model"][0]]
            legend.update(_legend(PARTS))
            for i, (part, white) in enumerate(PARTS.items()):
                values = cells[part].to_numpy()
                axes.bar(x, values, bottom=height, width=0.72, **_filled(colour, white))
                height = height + values
                bounded = cells.with_columns(x=x + 0.2 * (i - 1), top=height).filter(
                    pl.col(part) > 0, pl.col(f"{part}_low").is_not_null()
                )
                error = plot.distances(bounded, part, f"{part}_low", f"{part}_high")
                axes.errorbar(bounded["x"], bounded["top"], yerr=error, ls="", c=plot.INK, elinewidth=0.7)
            for place, share in zip(x, cells["starved"], strict=True):
                top = axes.get_xaxis_transform()
                axes.text(place, 0.99, f"{100 * share:.0f}", transform=top, ha="center", va="top", size=7)
            axes.margins(y=0.15)
            plot.budget_axis(axes, ladder)
            plot.y_label(axes, "thinking tokens per trajectory")
    return target


def sufficient_budgets(spent: pl.DataFrame, sheet: plot.Sheet) -> ReportFigure | None:
    """The share of problems solved within t (`thinking_spent`), per model and strategy. None without any."""
    if spent.is_empty():
        return None
    spent, left_out = plot.distinct(spent)
    target = plot.figure_files(sheet, "sufficient_budgets", left_out=left_out)
    ladder = plot.ladder_of(spent)
    columns = ["solved_within", "solved_within_low", "solved_within_high", "num_problems"]
    data = spent.select("model", "benchmark", "strategy", "solution_budget", "think_budget", "responses", *columns)
    with plot.panels_of(data, target, _by_responses(data)) as (panels, _):
        for axes, part in panels:
            for line in plot.lines_of(part.sort("think_budget", nulls_last=True), sheet):
                x = line.cells.select(plot.place_on(ladder)).to_series()
                low, high, middle = (100 * line.cells[f"solved_within{end}"] for end in ("_low", "_high", ""))
                axes.fill_between(x, low, high, color=line.colour, alpha=0.12, lw=0)
                style: dict[str, Any] = {"ls": line.style.line, "ms": 4, "lw": 1.2} | line.dots
                axes.plot(x, middle, c=line.colour, label=line.label, **style)
            plot.budget_axis(axes, ladder)
            axes.set_ylim(-3, 103)
            plot.y_label(axes, "problems solved within t (%)")
    return target


def leaks(summary: pl.DataFrame, sheet: plot.Sheet) -> ReportFigure | None:
    """The share of responses whose solution goes on thinking, over the thinking budget as a share of the model's mean
    thought without one; a panel per benchmark. None without thoughts of unlimited length, or leaks."""
    natural = summary.filter(strategy=FREE).select("model", "benchmark", natural="think_tokens_mean")
    cells = summary.join(natural.filter(pl.col("natural") > 0), on=["model", "benchmark"])
    cells = cells.filter(pl.col("think_budget") > 0, (pl.col("leak").max() > 0).over("model", "benchmark"))
    cells = cells.filter((pl.col("forced_fraction").max() > 0).over("model", "benchmark", "strategy"))
    if cells.is_empty():
        return None
    cells, left_out = plot.distinct(cells.with_columns(share=100 * pl.col("think_budget") / pl.col("natural")))
    bounds = ["leak", "leak_low", "leak_high"]
    data = cells.select(*CELL, "natural", "share", *bounds, "num_problems", "num_samples", "num_trajectories")
    target = plot.figure_files(sheet, "leaks", left_out=left_out)
    with plot.panels_of(data, target, data) as (panels, _):
        for axes, part in panels:
            for line in plot.lines_of(part.sort("share"), sheet):
                plot.draw_points(axes, line, line.cells, pl.col("share"), ("leak", "leak_low", "leak_high"), ls="-")
            plot.log2_axis(axes, part["share"].min(), part["share"].max())  # type: ignore[arg-type]
            axes.set_xlabel("t / mean thought without a budget (%)")
            plot.y_label(axes, "solutions that go on thinking (%)")
    return target


def _by_responses(spent: pl.DataFrame) -> pl.DataFrame:
    """A figure's data with the strategy and budget of each rung's responses; `ladder` is the strategy of its line."""
    free = pl.col("responses") == FREE
    return spent.with_columns(
        ladder="strategy", strategy="responses", solution_budget=pl.when(~free).then("solution_budget")
    ).drop("responses")


def _filled(colour: str, white: float) -> dict[str, Any]:
    """The outline of a bar or a box, and its filling: the colour with a share of white."""
    from matplotlib.colors import to_rgb

    filling = tuple(each + (1 - each) * white for each in to_rgb(colour))
    return {"edgecolor": colour, "facecolor": filling, "linewidth": 0.7}


def _legend(shares: dict[str, float]) -> dict[str, Any]:
    """What fillings mean, in no model's colour."""
    from matplotlib.patches import Patch

    return {name: Patch(**_filled(plot.INK, white)) for name, white in shares.items()}


def _phase_boxes(axes: Axes, cells: pl.DataFrame, budgets: list[int | None], colour: str) -> None:
    """Two boxes per budget, thinking left and solution right."""
    places = [budgets.index(t) for t in cells["think_budget"]]
    for shift, (phase, (_, white)) in zip((-0.19, 0.19), PHASES.items(), strict=True):
        axes.bxp(
            [{name: row[f"{phase}_{name}"] for name in _QUANTILES} for row in cells.iter_rows(named=True)],
            positions=[place + shift for place in places],
            widths=0.32,
            showfliers=False,
            patch_artist=True,
            boxprops=_filled(colour, white),
            # A phase that always spends its budget is only this line: it must carry the colour.
            medianprops={"color": colour, "linewidth": 1.8},
            whiskerprops={"color": colour, "linewidth": 0.8},
            capprops={"color": colour, "linewidth": 0.8},
            manage_ticks=False,
        )
    forced = dict(zip(places, cells["forced_tokens"], strict=True))
    labels = [f"{limit(t)}\n{f'{forced[i]:.2f}' if i in forced else '–'}" for i, t in enumerate(budgets)]
    plot.places(axes, labels)
    axes.axhline(0, color="none")  # brings 0 into view
