"""The figures, drawn from the summary, the trajectory table or the training metrics, and written as PNG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from elastic_core.budget import Budget
from reports.claims import TRAINED
from reports.drawing import (
    COLOURS,
    FREE,
    INK,
    benchmark_panels,
    draw_free,
    draw_lines,
    figure_of,
    legend_below,
    log2_axis,
    model_colours,
    sampled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAND = "Bands and bars: 95 % Wilson intervals, clustered by problem."

# Fill and outline of a phase, apart from the colours of the two models.
THINKING, SOLUTION = ("#56B4E9", "#1F6F9F"), ("#E69F00", "#8A5F00")

TRAINING_PANELS: tuple[tuple[str, dict[str, tuple[str, str]]], ...] = (
    ("mean reward", {"critic/score/mean": ("reward", COLOURS[TRAINED])}),
    (
        "tokens per response",
        {
            "response_length/mean": ("response", INK),
            "rollout/think_tokens": ("thinking", THINKING[0]),
            "rollout/solution_tokens": ("solution", SOLUTION[0]),
        },
    ),
    (
        "fraction not ended by the model",
        {"rollout/forced": ("thinking", THINKING[0]), "rollout/solution_cut": ("solution", SOLUTION[0])},
    ),
)
"""Panels of the training curve: title, and metric name → label and colour. `rollout/*` are those of
elastic_core.training; the others are verl's own."""
SMOOTHING_STEPS = 5


def accuracy_vs_tokens(summary: pl.DataFrame, path: Path, trained_budget: Budget | None = None) -> None:
    """avg@k over the mean sampled tokens of both phases, a panel per benchmark; the trained budget is ringed."""
    x = pl.col("tokens_mean")
    colours = model_colours(summary)
    ringed = summary.filter(_trained_at(trained_budget))
    note = BAND if ringed.is_empty() else f"{BAND} Ring: the trained budget, {trained_budget}."
    with benchmark_panels(summary, path, "Accuracy over tokens spent", note) as panels:
        for axes, cells in panels:
            draw_lines(axes, cells, x, colours)
            draw_free(axes, cells, x, colours)
            ring = cells.filter(_trained_at(trained_budget))
            axes.plot(ring["tokens_mean"], 100 * ring["avg_at_k"], "o", ms=13, mfc="none", mec=INK, mew=1.3, zorder=6)
            log2_axis(axes, cells["tokens_mean"].min(), cells["tokens_mean"].max())  # type: ignore[arg-type]
            axes.set_xlabel("mean tokens sampled, thinking + solution")


def accuracy_vs_budget(summary: pl.DataFrame, path: Path, trained_budget: Budget | None = None) -> None:
    """avg@k over the thinking budget t, evenly spaced, so that models are compared at equal budgets."""
    ladder = summary["think_budget"].drop_nulls().unique().sort().to_list()
    x = pl.col("think_budget").replace_strict({t: i for i, t in enumerate(ladder)}, default=len(ladder))
    labels = [*map(str, ladder), *(["∞"] if summary["think_budget"].null_count() else [])]
    colours = model_colours(summary)
    star = None if trained_budget is None else trained_budget.think
    note = f"{BAND} Vanilla is cut after t + s tokens in all."
    if star in ladder:
        note += f" Dotted: the trained t* = {star}."
    with benchmark_panels(summary, path, "Accuracy by thinking budget", note) as panels:
        for axes, cells in panels:
            draw_lines(axes, cells, x, colours)
            # Beside each other, because models without a budget tend to be equally good.
            draw_free(axes, cells, x + 0.3 * pl.col("model").rank("dense") - 0.3, colours)
            if star in ladder:
                axes.axvline(ladder.index(star), color=INK, lw=1.2, ls=":", zorder=0)
            axes.set_xticks(range(len(labels)), labels)
            axes.set_xlim(-0.4, len(labels) - 0.3)
            axes.set_xlabel("thinking budget t (tokens)")


def training_curve(metrics: pl.DataFrame, path: Path) -> None:
    """What training moved, over its steps. `metrics` has columns step, name, value; absent metrics get no panel.

    Raises:
        ValueError: when none of the metrics in TRAINING_PANELS is there.
    """
    present = set(metrics["name"])
    panels = [(title, names) for title, names in TRAINING_PANELS if present & names.keys()]
    if not panels:
        expected = [name for _, names in TRAINING_PANELS for name in names]
        raise ValueError(f"no training metric to draw among {sorted(present)}; expected some of {expected}")
    drawn = metrics.filter(pl.col("name").is_in([name for _, names in panels for name in names]))
    with figure_of(1, len(panels), path, "Training under the budget") as (figure, grid):
        entries = {}
        for axes, (title, names) in zip(grid.flat, panels, strict=True):
            for name in sorted(present & names.keys(), key=list(names).index):
                label, colour = names[name]
                series = drawn.filter(name=name).sort("step")
                trend = series["value"].rolling_mean(SMOOTHING_STEPS, min_samples=1, center=True)
                axes.plot(series["step"], series["value"], color=colour, lw=0.8, alpha=0.5)
                entries[label] = axes.plot(series["step"], trend, color=colour, lw=2)[0]
            axes.set_title(title)
            axes.set_xlabel("training step")
            if axes.dataLim.ymin >= 0:
                axes.set_ylim(bottom=0)
        note = (
            f"{drawn['step'].n_unique()} steps. Thin: the mean of one training batch; bold: centred mean of "
            f"{SMOOTHING_STEPS} steps. Batches differ in their problems: no intervals."
        )
        legend_below(figure, entries, note, num_columns=len(entries))


def tokens_by_phase(rows: pl.DataFrame, path: Path, strategy: str) -> None:
    """How many tokens each phase took under one strategy, per budget: a panel per benchmark and model.

    Unconstrained responses, where there are any, stand at ∞.

    Raises:
        ValueError: when the table has no rows of the strategy.
    """
    if strategy not in rows["strategy"]:
        raise ValueError(f"no rows of strategy {strategy} to draw")
    rows = rows.filter(pl.col("strategy").is_in([strategy, FREE]))
    benchmarks, models = sorted(rows["benchmark"].unique()), sorted(rows["model"].unique())
    budgets = rows["think_budget"].unique().sort(nulls_last=True).to_list()
    colours = model_colours(rows)
    title = f"Tokens by phase ({strategy.replace('_', ' ')})"
    note = "Box: quartiles and median; whiskers: 5th to 95th percentile. Under each t: mean forced tokens."
    with figure_of(len(benchmarks), len(models), path, title, sharey=True) as (figure, grid):
        for axes, (benchmark, model) in zip(grid.flat, ((b, m) for b in benchmarks for m in models), strict=True):
            cells = rows.filter(benchmark=benchmark, model=model)
            if cells.is_empty():
                axes.set_visible(False)
                continue
            samples = cells.group_by("problem", "strategy", "think_budget", "solution_budget").len()["len"]
            counts = sampled([cells["problem"].n_unique()], samples.to_list())
            axes.set_title(f"{benchmark}, {model} ({counts})", color=colours[model])
            entries = _phase_boxes(axes, cells, budgets)
        for axes in grid[-1]:
            axes.set_xlabel("thinking budget t (tokens; ∞: unconstrained)")
        for axes in grid[:, 0]:
            axes.set_ylabel("tokens per trajectory")
        legend_below(figure, entries, note, num_columns=len(entries))


def _phase_boxes(axes: Axes, cells: pl.DataFrame, budgets: list[int | None]) -> dict[str, object]:
    """Two boxes per budget, thinking left and solution right; the legend's entries."""
    entries: dict[str, object] = {}
    for shift, label, column, (fill, edge) in (
        (-0.19, "thinking", "think_tokens", THINKING),
        (0.19, "solution", "solution_tokens", SOLUTION),
    ):
        tokens = [cells.filter(pl.col("think_budget").eq_missing(pl.lit(t)))[column].to_numpy() for t in budgets]
        boxes = axes.boxplot(
            tokens,
            positions=[i + shift for i in range(len(budgets))],
            widths=0.32,
            whis=(5, 95),
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": fill, "edgecolor": edge, "linewidth": 0.8},
            # A phase that always spends its budget is only this line: it must carry the colour.
            medianprops={"color": edge, "linewidth": 2.4},
            whiskerprops={"color": edge},
            capprops={"color": edge},
            manage_ticks=False,
        )
        entries[label] = boxes["boxes"][0]
    labels = []
    for t in budgets:
        forced = cells.filter(pl.col("think_budget").eq_missing(pl.lit(t)))["forced_tokens"].to_numpy()
        labels.append(f"{'∞' if t is None else t}\n{f'{forced.mean():.2f}' if len(forced) else '–'}")
    axes.set_xticks(range(len(budgets)), labels)
    axes.set_xlim(-0.6, len(budgets) - 0.4)
    axes.axhline(0, color="none")  # brings 0 into view
    return entries


def _trained_at(budget: Budget | None) -> pl.Expr:
    """Whether a cell is the trained model's under the budget that it was trained at."""
    if budget is None:
        return pl.lit(False)
    return (
        (pl.col("model") == TRAINED)
        & (pl.col("strategy") == "separate")
        & pl.col("think_budget").eq_missing(pl.lit(budget.think))
        & pl.col("solution_budget").eq_missing(pl.lit(budget.solution))
    )
