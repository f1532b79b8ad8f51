"""Accuracy over tokens spent, over thinking budgets (Elastic Reasoning, Figures 1, 4 to 6), and over cost."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from elastic_core.budget import Budget
from elastic_core.statistics.estimates import by_seed
from elastic_core.statistics.frontier import hull
from elastic_core.statistics.stop_frontier import BUDGETED, ORACLE, best_rules
from elastic_core.statistics.which_budget import NonInferiority
from elastic_core.strategies import BASELINE, FREE, SERVED
from elastic_core.trajectory import BUDGET, CELL
from reports import figures as plot
from reports.content import ReportFigure, Training
from reports.summary import TRAINED, is_partial
from reports.tables import ACCURACY, sources
from reports.wording import budget_text, texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN = [*CELL, "num_problems", "num_samples", "num_trajectories", *plot.ACCURACY]
_POINTS = 200  # Of a line that is straight in cost, on an axis that is not.
_PUBLISHED_MARKS = ("x", "+", "1", "2", "3", "4", "|", "_")  # Thin ones, apart from those of the strategies.


def accuracy_vs_tokens(
    summary: pl.DataFrame, sheet: plot.Sheet, trained_budget: Budget | None, published: pl.DataFrame
) -> ReportFigure:
    """avg@k over the mean sampled tokens of both phases, of the `distinct` cells, a panel per benchmark; the trained
    budget is ringed, and `PUBLISHED` numbers with tokens and an accuracy are drawn."""
    summary, left_out = plot.distinct(summary)
    ringed = summary.filter(_trained_at(trained_budget))
    theirs = published.filter(pl.col("tokens").is_not_null(), pl.col("metric").is_in(ACCURACY))
    words = {"cells": _caption(summary), "left_out": left_out, "sources": sources(theirs)}
    words["budget"] = "" if ringed.is_empty() else str(trained_budget)
    target = plot.figure_files(sheet, "accuracy_vs_tokens", **words)
    ours = _over_tokens(summary).with_columns(source=pl.lit("measured"))
    beside = theirs.select(
        "model",
        "benchmark",
        avg_at_k=pl.col("value") / 100,
        tokens_mean=pl.col("tokens").cast(pl.Float64),
        source=pl.lit("published: ") + pl.col("source"),
    )
    data = pl.concat([ours, beside], how="diagonal")
    marks = dict(zip(theirs["model"].unique().sort(), cycle(_PUBLISHED_MARKS), strict=False))
    with plot.panels_of(summary, target, data) as (panels, _):
        for axes, cells in panels:
            _draw_over_tokens(axes, cells, sheet)
            ring = cells.filter(_trained_at(trained_budget))
            plot.draw_ring(axes, ring["tokens_mean"], ring["avg_at_k"])
            there = theirs.filter(benchmark=cells["benchmark"][0])
            for (model,), part in there.sort("model").partition_by("model", as_dict=True, maintain_order=True).items():
                style: dict[str, Any] = {"marker": marks[str(model)], "ms": 5, "c": "0.45", "mew": 1.1}
                axes.plot(part["tokens"], part["value"], ls="", label=f"published: {model}", **style)
            tokens = [*cells["tokens_mean"], *there["tokens"]]
            plot.log2_axis(axes, min(tokens), max(tokens))
    return target


def strategies_vs_tokens(summary: pl.DataFrame, sheet: plot.Sheet) -> ReportFigure | None:
    """avg@k of every strategy over sampled tokens, a panel per benchmark and model. None where `accuracy_vs_tokens`
    leaves none out."""
    if plot.distinct(summary)[0].height == summary.height:
        return None
    target = plot.figure_files(sheet, "strategies_vs_tokens", cells=_caption(summary))
    with plot.panels_of(summary, target, _over_tokens(summary), sheet) as (panels, _):
        for axes, cells in panels:
            _draw_over_tokens(axes, cells, sheet)
            tokens = summary.filter(benchmark=cells["benchmark"][0])["tokens_mean"]  # One axis for all models.
            plot.log2_axis(axes, min(tokens), max(tokens))
    return target


def accuracy_vs_budget(summary: pl.DataFrame, sheet: plot.Sheet, trained_budget: Budget | None) -> ReportFigure:
    """avg@k over the thinking budget t, evenly spaced, so that models are compared at equal budgets."""
    summary, left_out = plot.distinct(summary)
    ladder = plot.ladder_of(summary)
    star = trained_budget.think if trained_budget is not None and trained_budget.think in ladder else None
    words = {"cells": _caption(summary), "left_out": left_out, "vanilla": BASELINE in summary["strategy"], "star": star}
    target = plot.figure_files(sheet, "accuracy_vs_budget", **words)
    _draw_by_budget(summary, target, sheet, star)
    return target


def training_ablation(
    summary: pl.DataFrame, sheet: plot.Sheet, trainings: Mapping[str, Training]
) -> ReportFigure | None:
    """Models trained under different budgets side by side, under separate budgeting (Figure 6). None when fewer than
    two trained models were measured so."""
    trained = [model for model in trainings if model in summary["model"]]
    single = ~pl.col("model").str.contains(">", literal=True)
    cells = summary.filter(single, pl.col("strategy").is_in([SERVED, FREE]))
    if len(set(trained) & set(cells.filter(strategy=SERVED)["model"])) < 2:
        return None
    trained_under = ", ".join(f"{model} under {trainings[model].shown}" for model in sorted(trained))
    target = plot.figure_files(sheet, "training_ablation", cells=_caption(cells), trained_under=trained_under)
    _draw_by_budget(cells, target, sheet, None)
    return target


def pareto_frontier(priced: pl.DataFrame, advised: pl.DataFrame, sheet: plot.Sheet, unit: str) -> ReportFigure | None:
    """avg@k over the mean cost of a response in `unit` (`reports.tables.costs.priced`), a panel per benchmark;
    certified budgets of `advised_budgets` are marked. None of a single cell."""
    if priced.height < 2:
        return None
    holds = advised.filter(verdict=NonInferiority.CERTIFIED)
    target = plot.figure_files(sheet, "pareto_frontier", unit=unit, advised=not holds.is_empty())
    values = ["cost", "cost_low", "cost_high", "avg_at_k", "ci_low", "ci_high", "num_problems", "num_samples"]
    with plot.panels_of(priced, target, priced.select(*CELL, *values, "frontier")) as (panels, _):
        for axes, cells in panels:
            for line in plot.lines_of(cells, sheet):
                accuracy = 100 * line.cells["avg_at_k"]
                axes.plot(line.cells["cost"], accuracy, ls="", ms=3, c=line.colour, alpha=0.35, **line.dots)
                best, costs = line.cells.filter("frontier"), ("cost", "cost_low", "cost_high")
                label = line.label if best.height else None
                plot.draw_points(axes, line, best, costs, plot.ACCURACY, ms=4.5, elinewidth=0.8, label=label)
            frontier = cells.filter("frontier").sort("cost")
            axes.step(frontier["cost"], 100 * frontier["avg_at_k"], where="post", c=plot.INK, lw=0.9, zorder=1)
            ring = cells.join(holds, on=CELL, how="semi", nulls_equal=True)
            plot.draw_ring(axes, ring["cost"], ring["avg_at_k"])
            for cell in ring.with_columns(text=budget_text()).iter_rows(named=True):
                place = cell["cost"], 100 * cell["avg_at_k"]
                axes.annotate(cell["text"], place, (6, -9), textcoords="offset points", size=7)
            plot.log2_axis(axes, min(cells["cost"]), max(cells["cost"]))
            axes.set_xlabel(unit)
            plot.accuracy_axis(axes)
    return target


def stop_frontier(found: pl.DataFrame, sheet: plot.Sheet, unit: str) -> ReportFigure | None:
    """The frontier of fixed budgets and that of stop rules (`elastic_core.statistics.stop_frontier.outcomes`), with
    model and benchmark, a panel per benchmark. None where no rule can be tried."""
    if found.is_empty():
        return None
    target = plot.figure_files(sheet, "stop_rules", unit=unit)
    with plot.panels_of(found, target, found) as (panels, _):
        for axes, part in panels:
            colour = sheet.colours[part["model"][0]]
            fixed, rules, best = part.filter(kind=BUDGETED), best_rules(part), part.filter(kind=ORACLE)
            limited = fixed.filter(pl.col("budget").is_not_null())
            free = fixed.filter(pl.col("budget").is_null())
            axes.plot(fixed["cost"], 100 * fixed["accuracy"], "-", c=colour, lw=1)
            axes.plot(limited["cost"], 100 * limited["accuracy"], "o", ms=3, c=colour, label="fixed budgets")
            axes.plot(free["cost"], 100 * free["accuracy"], "*", ms=8, c=colour, label="no budget")
            costs, means = fixed["cost"].to_numpy(), fixed["accuracy"].to_numpy()
            corners = hull(costs.tolist(), means.tolist())
            between = np.linspace(costs[corners[0]], costs[corners[-1]], _POINTS)
            mixed = np.interp(between, costs[corners], means[corners])
            axes.plot(between, 100 * mixed, "--", c=colour, lw=1, label="their mixtures")
            bars = plot.distances(rules, "gain", "gain_low", "gain_high")
            axes.errorbar(
                rules["cost"], 100 * rules["accuracy"], 100 * bars, fmt="D", ms=3, c=plot.INK, lw=0.8,
                label="stop rules",
            )  # fmt: skip
            axes.plot(best["cost"], 100 * best["accuracy"], "x", ms=5, c=plot.INK, label="best of each sample")
            plot.log2_axis(axes, min(part["cost"]), max(part["cost"]))
            axes.set_xlabel(unit)
            plot.accuracy_axis(axes)
    return target


def _draw_by_budget(cells: pl.DataFrame, target: ReportFigure, sheet: plot.Sheet, star: int | None) -> None:
    ladder = plot.ladder_of(cells)
    place = plot.place_on(ladder)
    spread = max(1, cells.filter(strategy=FREE)["model"].n_unique() - 1)
    with plot.panels_of(cells, target, cells.select(_drawn(cells))) as (panels, _):
        for axes, part in panels:
            _draw_seeds(axes, part, place, sheet)
            plot.draw_lines(axes, part, place, sheet)
            # Next to each other, because models without a budget tend to be equally good.
            plot.draw_free(axes, part, place + 0.5 * (pl.col("model").rank("dense") - 1) / spread - 0.25, sheet)
            if star is not None:
                axes.axvline(ladder.index(star), color=plot.INK, lw=1, ls=":", zorder=0)
            plot.budget_axis(axes, ladder)
            plot.accuracy_axis(axes)


def _over_tokens(summary: pl.DataFrame) -> pl.DataFrame:
    """The data of cells that are drawn over tokens."""
    return summary.select(*_drawn(summary, "tokens_mean"), "tokens_mean", "tokens_mean_low", "tokens_mean_high")


def _draw_over_tokens(axes: Axes, cells: pl.DataFrame, sheet: plot.Sheet) -> None:
    x = pl.col("tokens_mean")
    _draw_seeds(axes, cells, x, sheet, pl.col(by_seed("tokens_mean")))
    plot.draw_lines(axes, cells, x, sheet)
    plot.draw_free(axes, cells, x, sheet)
    axes.set_xlabel(plot.TOKENS_LABEL)
    plot.accuracy_axis(axes)


def _caption(summary: pl.DataFrame) -> str:
    partial = f" {plot.PARTIAL}" if is_partial(summary) else ""
    several = summary.filter(pl.col("num_seeds") > 1).select("model", "num_seeds").unique().sort("model").rows()
    listed = ", ".join(f"{model}: {n}" for model, n in several)
    seeds = f" Faint lines: single seeds of training ({listed}); the intervals include their spread." if several else ""
    return texts("shared")["band"] + seeds + partial


def _drawn(summary: pl.DataFrame, *further: str) -> list[Any]:
    """The columns of the cells' data, and each seed's values as text where there are several seeds."""
    if summary["num_seeds"].max() == 1:
        return DRAWN
    lists = [
        pl.col(by_seed(name)).list.eval(pl.element().round(6).cast(pl.String)).list.join(" ")
        for name in ("avg_at_k", *further)
    ]
    return [*DRAWN, "num_seeds", *lists]


def _draw_seeds(axes: Axes, cells: pl.DataFrame, x: pl.Expr, sheet: plot.Sheet, of_seed: pl.Expr | None = None) -> None:
    """A faint line for each seed of a model that was trained with several; `of_seed` is the list of their x where seeds
    differ in it."""
    scores = pl.col(by_seed("avg_at_k"))
    several = cells.filter(pl.col("num_seeds") > 1, pl.col("strategy") != FREE).with_columns(x=x)
    for line in plot.lines_of(several.sort("x"), sheet):
        listed = line.cells.select(scores, x=pl.col("x").repeat_by("num_seeds") if of_seed is None else of_seed)
        values = listed.to_dict(as_series=False)
        accuracy = 100 * np.array(values[by_seed("avg_at_k")])
        axes.plot(values["x"], accuracy, ls=line.style.line, lw=0.6, c=line.colour, alpha=0.45)


def _trained_at(budget: Budget | None) -> pl.Expr:
    """Whether a cell is the trained model's under the budget that it was trained at."""
    if budget is None:
        return pl.lit(False)
    cell = ("model", TRAINED), ("strategy", SERVED), *zip(BUDGET, (budget.think, budget.solution), strict=True)
    return pl.all_horizontal(pl.col(name).eq_missing(pl.lit(value)) for name, value in cell)
