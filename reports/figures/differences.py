"""Paired differences between models and between strategies, and the gain of the next tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from elastic_core.strategies import BASELINE, FREE
from reports import figures as plot
from reports.content import ReportFigure
from reports.wording import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 0.7  # Of the bars at one budget, as a share of its room.
MIN_GROWTH = 0.05  # By which tokens must grow from one budget to the next for a gain per token to mean anything.
_FRAME = 5  # Of marginal gains, in sizes of the median one.


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


def marginal(gains: pl.DataFrame, sheet: plot.Sheet) -> ReportFigure | None:
    """Points of accuracy per 100 tokens more, between neighbouring budgets whose tokens differ (`MIN_GROWTH`). None
    when there are no two.

    The frame is of the size of the middle gain, which no single ratio moves; a gain beyond it is marked at its edge.
    """
    drawn, left_out = plot.distinct(gains)
    bounded = drawn.filter(pl.col("next_tokens") >= (1 + MIN_GROWTH) * pl.col("tokens"), pl.col("low").is_not_null())
    if bounded.is_empty():
        return None
    sizes = bounded.filter(pl.col("gain") != 0)["gain"].abs()
    reach = _FRAME * float(sizes.median() if len(sizes) else 0.01)  # type: ignore[arg-type]
    beyond = int((bounded["gain"].abs() > reach).sum())
    words = {"omitted": f"{drawn.height - bounded.height} of {drawn.height}", "growth": f"{100 * MIN_GROWTH:.0f}"}
    words |= {"frame": str(_FRAME), "reach": f"{100 * reach:.3g}", "left_out": left_out}
    lowest, highest = min(0.0, *bounded["low"]), max(0.0, *bounded["high"])
    frame = 105 * max(-reach, lowest), 105 * min(reach, highest)
    target = plot.figure_files(sheet, "marginal_accuracy", beyond=beyond, **words)
    middle = pl.mean_horizontal("tokens", "next_tokens")
    with plot.panels_of(bounded, target, bounded) as (panels, _):
        for axes, part in panels:
            axes.axhline(0, color=plot.INK, lw=0.8)
            for line in plot.lines_of(part.sort(middle), sheet):
                style = {"ls": line.style.line, "ms": 4.5 * line.style.size, "lw": 1.4, "elinewidth": 1.1}
                plot.draw_points(axes, line, line.cells, middle, ("gain", "low", "high"), 1, **style)
                _draw_beyond(axes, line, middle, reach)
            plot.log2_axis(axes, bounded["tokens"].min(), bounded["next_tokens"].max())  # type: ignore[arg-type]
            axes.set_ylim(*frame)
            axes.set_xlabel(plot.TOKENS_LABEL)
            plot.y_label(axes, "points per 100 tokens")
    return target


def _draw_beyond(axes: Axes, line: plot.Line, x: pl.Expr, reach: float) -> None:
    """Triangles and numbers at the frame's edge for gains beyond it."""
    for cell in line.cells.with_columns(x=x).filter(pl.col("gain").abs() > reach).iter_rows(named=True):
        up = cell["gain"] > 0
        edge, marker = (0.97, 6) if up else (0.03, 7)  # matplotlib's carets, whose tip is their place
        place = axes.get_xaxis_transform()
        axes.plot(cell["x"], edge, marker=marker, ms=9, c=line.colour, transform=place, clip_on=False, zorder=6)
        axes.annotate(
            f"{100 * cell['gain']:+,.0f}", (cell["x"], edge), (-7, 0), xycoords=place, textcoords="offset points",
            ha="right", va="top" if up else "bottom", size=8, color=line.colour,
        )  # fmt: skip
