"""What the figures share: the look, a panel per benchmark, and how a line of cells is drawn.

Colour is the model, shape the strategy, in every figure. Bytes depend on the data and matplotlib's version only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from elastic_core.atomic import replacing
from reports.claims import BASE, TRAINED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Colour = str | tuple[float, float, float]

# Okabe and Ito's palette, told apart by every kind of colour vision.
COLOURS = {BASE: "#0072B2", TRAINED: "#D55E00"}
OTHER_COLOURS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9")
INK = "#333333"

# Line style, marker, and how far the model's colour is mixed with white, so that three lines of one model differ.
STYLES = {"separate": ("-", "o", 0.0), "budget_forcing": ("--", "s", 0.25), "vanilla": (":", "^", 0.45)}
OTHER_STYLE = ("-.", "D", 0.15)
FREE = "unconstrained"

_LOOK: dict[Any, Any] = {
    "figure.constrained_layout.use": True,
    "figure.titlesize": 13,
    "font.size": 10.5,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "savefig.dpi": 150,
}


@contextmanager
def figure_of(
    num_rows: int, num_columns: int, path: Path, title: str, sharey: bool = False
) -> Iterator[tuple[Figure, Any]]:
    """A figure and its grid of axes, shape (rows, columns), written to `path` as PNG when the block ends."""
    # Without pyplot: it imports slowly, and keeps a backend and every figure in global state.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_LOOK):
        figure = Figure(figsize=(max(4.6 * num_columns, 7.0), 3.4 * num_rows + 1.2))
        figure.suptitle(title)
        yield figure, figure.subplots(num_rows, num_columns, squeeze=False, sharey=sharey)
        with replacing(path) as temporary:
            # Without the software's name and version, equal pixels are equal bytes.
            figure.savefig(temporary, format="png", metadata={"Software": None})


@contextmanager
def benchmark_panels(
    summary: pl.DataFrame, path: Path, title: str, note: str
) -> Iterator[list[tuple[Axes, pl.DataFrame]]]:
    """Axes and cells of each benchmark, accuracy in percent on the y axis; legend and note below all of them."""
    benchmarks = summary["benchmark"].unique().sort().to_list()
    num_columns = min(len(benchmarks), 3)
    num_rows = -(-len(benchmarks) // num_columns)
    with figure_of(num_rows, num_columns, path, title, sharey=True) as (figure, grid):
        for axes in grid.flat[len(benchmarks) :]:
            axes.set_visible(False)
        panels = [(axes, summary.filter(benchmark=name)) for axes, name in zip(grid.flat, benchmarks, strict=False)]
        for (axes, cells), benchmark in zip(panels, benchmarks, strict=True):
            counts = sampled(cells["num_problems"].to_list(), cells["num_samples"].to_list())
            axes.set_title(f"{benchmark} ({counts})")
            axes.set_ylim(-3, 103)
        yield panels
        for axes in grid[:, 0]:
            axes.set_ylabel("accuracy (avg@k, %)")
        entries: dict[str, Any] = {}
        for axes, _ in panels:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        entries = dict(sorted(entries.items(), key=lambda entry: entry[0].endswith(FREE)))
        # Columns fill first: as many as there are models, and one for the stars, puts each model in its own.
        num_models = summary["model"].n_unique()
        stars = any(summary["strategy"] == FREE)
        legend_below(figure, entries, note, num_columns=min(num_models + stars, 4))


def legend_below(figure: Figure, entries: dict[str, Any], note: str, num_columns: int) -> None:
    """Label → handle, and the note that says what the figure's marks mean, below all panels."""
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside lower center",
        ncols=num_columns,
        title=note,
        title_fontproperties={"size": 9},
    )


def draw_lines(axes: Axes, cells: pl.DataFrame, x: pl.Expr, colours: dict[str, str]) -> None:
    """One line with its band per model, strategy and solution budget, over `x`, a number per cell."""
    constrained = cells.filter(pl.col("strategy") != FREE).with_columns(x=x).sort("x")
    lines = constrained.partition_by("model", "strategy", "solution_budget", as_dict=True)
    for model, strategy, solution in sorted(lines, key=_legend_order):
        line = lines[model, strategy, solution]
        linestyle, marker, white = STYLES.get(strategy, OTHER_STYLE)
        colour = _lighter(colours[model], white)
        if line.height == 1:
            _interval(axes, line.row(0, named=True), colour)
        axes.fill_between(line["x"], 100 * line["ci_low"], 100 * line["ci_high"], color=colour, alpha=0.14, lw=0)
        label = f"{model}, {strategy.replace('_', ' ')} (s = {'∞' if solution is None else solution})"
        axes.plot(
            line["x"], 100 * line["avg_at_k"], ls=linestyle, marker=marker, ms=5.5, lw=1.8, color=colour, label=label
        )


def draw_free(axes: Axes, cells: pl.DataFrame, x: pl.Expr, colours: dict[str, str]) -> None:
    """A star with its interval for each model without a budget."""
    for cell in cells.filter(strategy=FREE).with_columns(x=x).sort("model").iter_rows(named=True):
        colour = colours[cell["model"]]
        _interval(axes, cell, colour)
        label = f"{cell['model']}, {FREE}"
        axes.plot(
            cell["x"], 100 * cell["avg_at_k"], "*", ms=13, color=colour, mec="white", mew=0.6, zorder=5, label=label
        )


def _interval(axes: Axes, cell: dict[str, Any], colour: Colour) -> None:
    """An error bar, for a cell that no line runs through."""
    axes.vlines(cell["x"], 100 * cell["ci_low"], 100 * cell["ci_high"], color=colour, lw=1.6, zorder=4)


def model_colours(rows: pl.DataFrame) -> dict[str, str]:
    """The colour of each model of a whole table: fixed for base and trained, then by place among the others."""
    others = sorted(set(rows["model"]) - COLOURS.keys())
    return COLOURS | {model: OTHER_COLOURS[i % len(OTHER_COLOURS)] for i, model in enumerate(others)}


def log2_axis(axes: Axes, low: float, high: float) -> None:
    """A log2 x axis around [low, high] with a tick at every power of two, written out; two at least."""
    left, right = low / 1.15, high * 1.15
    powers = 2.0 ** np.arange(np.floor(np.log2(left)), np.ceil(np.log2(right)) + 1)
    if np.sum((powers >= left) & (powers <= right)) < 2:
        left, right = powers[0], powers[-1]
    ticks = [power for power in powers if left <= power <= right]
    axes.set_xscale("log", base=2)
    axes.set_xlim(left, right)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])


def sampled(num_problems: list[int], num_samples: list[int]) -> str:
    """ "100 problems × 8 samples", with a range where cells differ."""
    return f"{_range(num_problems)} problems × {_range(num_samples)} samples"


def _range(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _lighter(colour: str, white: float) -> Colour:
    from matplotlib.colors import to_rgb

    red, green, blue = (channel + (1 - channel) * white for channel in to_rgb(colour))
    return red, green, blue


def _legend_order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    model, strategy, solution = key
    known = list(STYLES)
    place = known.index(strategy) if strategy in known else len(known)
    return (model, place, strategy, solution is None, solution)
