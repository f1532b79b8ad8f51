"""Files, panels, and lines of cells, shared by all figures.

Each is drawn from a small frame, which is saved as CSV. Colour is the model, mark and line the strategy, in every
figure. Bytes depend on the data and on matplotlib's version only.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from math import ceil, floor, log2
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from elastic_core.strategies import BASELINE, FREE, SERVED
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.system.files import replacing, write_csv
from reports.content import ReportFigure
from reports.summary import BASE, TRAINED, partial
from reports.wording import captioned, limit, plain, sampled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Colour = str | tuple[float, float, float]

INK = "#333333"

TOKENS_LABEL = "mean tokens sampled, thinking + solution"
MAX_ACROSS = 4  # Most panels in a row.
MAX_MODELS = 3  # Of more models, only separate budgeting is drawn, and responses without a budget.
PARTIAL = "Hollow marks: cells with fewer trajectories than the fullest cell of their benchmark."

COLOURS = {BASE: "C0", TRAINED: "C1"}
NUM_COLOURS = 10  # In the style file.
LEAST_CONTRAST = 3.0  # Of a line or a mark against its background (WCAG 2.2, 1.4.11).

RGB = Sequence[float]
WHITE = (1.0, 1.0, 1.0)


class Style(NamedTuple):
    """How a strategy is drawn: its line, its marker and that one's relative size, and the share of white in the model's
    colour, as far as it stays visible (`tinted`), so that lines of one model differ."""

    line: str
    marker: str
    white: float = 0.0
    size: float = 1.0


STYLES = {
    SERVED: Style("-", "o"),
    "budget_forcing": Style("--", "s", 0.25),
    BASELINE: Style(":", "^", 0.45),
    REASONFLUX_ZERO: Style("-.", "D", 0.15),
    FREE: Style("-", "*", size=2.2),
}
_LINES = ("-.", "--", ":", "-")
_MARKERS = "PXvph<>dH81234"  # Of other strategies.


def model_colours(models: Iterable[str]) -> dict[str, str]:
    """The colour of each model of a report: fixed for base and trained, then by place among the others."""
    others = sorted(set(models) - COLOURS.keys())
    rest = NUM_COLOURS - len(COLOURS)
    return COLOURS | {model: f"C{len(COLOURS) + i % rest}" for i, model in enumerate(others)}


def hex_colours(models: Iterable[str]) -> dict[str, str]:
    """The colour of each model as "#rrggbb", the same as in a report's figures."""
    import matplotlib
    from matplotlib.colors import to_hex

    with matplotlib.rc_context(fname=str(files("reports").joinpath("elastic.mplstyle"))):
        return {model: to_hex(colour) for model, colour in model_colours(models).items()}


def strategy_styles(strategies: Iterable[str]) -> dict[str, Style]:
    """The style of each strategy of a report: from `STYLES`, then by place among the others. None shares its mark with
    another, as long as there are marks."""
    others = enumerate(sorted(set(strategies) - STYLES.keys()))
    made = {name: Style(_LINES[i % len(_LINES)], _MARKERS[i % len(_MARKERS)], 0.1 * (i % 5)) for i, name in others}
    return STYLES | made


def contrast(one: RGB, other: RGB) -> float:
    """The contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: RGB) -> float:
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def tinted(colour: RGB, white: float) -> tuple[float, float, float]:
    """A colour mixed with white, as far as it stays visible on white; one that is too light is darkened until it is
    seen."""
    shares = [white * step / 20 for step in range(20, -1, -1)]
    mixed = [tuple(each + (1 - each) * share for each in colour) for share in shares]
    mixed += [tuple(each * (1 - step / 20) for each in colour) for step in range(1, 20)]
    red, green, blue = next(each for each in mixed if contrast(each, WHITE) >= LEAST_CONTRAST)
    return red, green, blue


class Sheet(NamedTuple):
    """What every figure of a report is drawn with: where to, each model's colour, and each strategy's style."""

    directory: Path
    colours: dict[str, str]
    styles: dict[str, Style] = STYLES


def figure_files(sheet: Sheet, name: str, **words: Any) -> ReportFigure:
    """A figure and its files, with the title and caption of `captioned`."""
    png, svg, data = (sheet.directory / f"{name}.{suffix}" for suffix in ("png", "svg", "csv"))
    return ReportFigure(name, *captioned("figures", name, **words), png, svg, data)


@contextmanager
def figure_of(
    num_panels: int, across: int, target: ReportFigure, data: pl.DataFrame, sharey: bool = True
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure and its panels, in rows of `across`; written as PNG, SVG and data when the block ends."""
    # Without pyplot: it imports slowly, and keeps a backend and every figure in global state.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    num_rows = -(-num_panels // across)
    with matplotlib.rc_context(fname=str(files("reports").joinpath("elastic.mplstyle"))):
        figure = Figure(figsize=(max(4.6 * across, 7.0), 3.4 * num_rows + 0.4))
        figure.suptitle(target.title)
        places = list(figure.subplots(num_rows, across, squeeze=False, sharey=sharey).flat)
        for axes in places[num_panels:]:
            axes.set_visible(False)
        yield figure, places[:num_panels]
        # Not by savefig, which draws twice. Without the software's name and version, equal pixels are equal bytes.
        with replacing(target.png) as temporary:
            FigureCanvasAgg(figure).print_png(temporary, metadata={"Software": None})
        figure.set_layout_engine("none")  # The PNG has found the layout, of which both have one.
        with replacing(target.svg) as temporary:
            FigureCanvasSVG(figure).print_svg(temporary, metadata={"Date": None, "Creator": None})
    with replacing(target.data) as temporary:
        write_csv(data, temporary, float_precision=6)


@contextmanager
def panels_of(
    cells: pl.DataFrame, target: ReportFigure, data: pl.DataFrame, sheet: Sheet | None = None
) -> Iterator[tuple[list[tuple[Axes, pl.DataFrame]], dict[str, Any]]]:
    """Axes and cells of each benchmark, or with a sheet of each benchmark and model, models of a benchmark side by
    side; and the legend, label → handle, which has the labelled lines unless the block fills it. The legend stands
    below all panels with the caption."""
    by = ["benchmark"] if sheet is None else ["benchmark", "model"]
    parts = cells.sort(by, maintain_order=True).partition_by(by, maintain_order=True)
    num_models = cells["model"].n_unique()
    across = min(len(parts), 3) if sheet is None else min(num_models, MAX_ACROSS)
    with figure_of(len(parts), across, target, data) as (figure, places):
        panels = list(zip(places, parts, strict=True))
        for axes, part in panels:
            title = ", ".join(part[name][0] for name in by)
            colour: dict[str, Any] = {} if sheet is None else {"color": sheet.colours[part["model"][0]]}
            axes.set_title(f"{title} ({sampled(part)})", **colour)
        legend: dict[str, Any] = {}
        yield panels, legend
        if legend:
            legend_below(figure, legend, target.caption, len(legend))
            return
        for axes in places:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                legend.setdefault(label, handle)
        legend = dict(sorted(legend.items(), key=lambda entry: entry[0].endswith(FREE)))
        # Columns fill first: as many as there are models, and one for the stars, gives each model a column.
        legend_below(figure, legend, target.caption, num_models + any(label.endswith(FREE) for label in legend))


def legend_below(figure: Figure, entries: dict[str, Any], note: str, num_columns: int) -> None:
    """Put label → handle, and the note that explains the marks, below all panels: the figure grows by them."""
    width = figure.get_figwidth()
    title = textwrap.fill(note, int(13 * width))
    widest = 0.7 + 0.085 * max(map(len, entries))  # inches, by the style's size of letters
    num_columns = max(1, min(num_columns, int(width / widest)))
    lines = -(-len(entries) // num_columns)
    figure.set_figheight(figure.get_figheight() + 0.2 + 0.22 * lines + 0.16 * (title.count("\n") + 1))
    style: dict[str, Any] = {"loc": "outside lower center", "title_fontproperties": {"size": 9}}
    figure.legend(entries.values(), entries.keys(), ncols=num_columns, title=title, **style)


def distinct(cells: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The cells that one panel can show apart, and the sentence on the others for the caption."""
    shown = cells.filter(pl.col("strategy").is_in([SERVED, FREE]))
    if cells["model"].n_unique() <= MAX_MODELS or shown.height == cells.height or SERVED not in cells["strategy"]:
        return cells, ""
    return shown, " With so many models only separate budgeting is drawn; the tables have every strategy."


class Line(NamedTuple):
    """The cells of one model, strategy and solution budget, and how they are drawn."""

    cells: pl.DataFrame
    strategy: str
    colour: Colour
    style: Style
    label: str


def lines_of(cells: pl.DataFrame, sheet: Sheet) -> list[Line]:
    """Every line of a table in the legend's order, its cells in the order they have. Call it within the block of a
    figure: its style defines the names of colours."""
    from matplotlib.colors import to_rgb

    found = []
    lines = cells.partition_by("model", "strategy", "solution_budget", as_dict=True)
    for (model, strategy, solution), line in lines.items():
        style = sheet.styles[strategy]
        colour = tinted(to_rgb(sheet.colours[model]), style.white)
        label = f"{model}, {plain(strategy)}" + ("" if strategy == FREE else f" (s = {limit(solution)})")
        order = model, list(sheet.styles).index(strategy), solution is None, solution
        found.append((order, Line(line, strategy, colour, style, label)))
    return [line for _, line in sorted(found, key=lambda each: each[0])]


def draw_lines(axes: Axes, cells: pl.DataFrame, x: pl.Expr, sheet: Sheet) -> None:
    """avg@k of one line with its band per model, strategy and solution budget, over `x`, a number per cell."""
    constrained = cells.with_columns(partial=partial()).filter(pl.col("strategy") != FREE)
    for line in lines_of(constrained.with_columns(x=x).sort("x"), sheet):
        shown = line.cells
        if shown.height == 1:
            _interval(axes, shown.row(0, named=True), line.colour)
        low, high = 100 * shown["ci_low"], 100 * shown["ci_high"]
        axes.fill_between(shown["x"], low, high, color=line.colour, alpha=0.14, lw=0)
        dots: dict[str, Any] = {"marker": line.style.marker, "ms": 5.5}
        axes.plot(
            shown["x"], 100 * shown["avg_at_k"], ls=line.style.line, lw=1.8, c=line.colour, label=line.label, **dots
        )
        hollow = shown.filter("partial")
        axes.plot(hollow["x"], 100 * hollow["avg_at_k"], ls="", mfc="white", mec=line.colour, **dots)


def draw_free(axes: Axes, cells: pl.DataFrame, x: pl.Expr, sheet: Sheet) -> None:
    """A star with its interval for each model without a budget."""
    free = cells.with_columns(partial=partial()).filter(strategy=FREE)
    for cell in free.with_columns(x=x).sort("model").iter_rows(named=True):
        colour = sheet.colours[cell["model"]]
        _interval(axes, cell, colour)
        face, edge, width = ("white", colour, 1.2) if cell["partial"] else (colour, "white", 0.6)
        mark, label = sheet.styles[FREE].marker, f"{cell['model']}, {FREE}"
        axes.plot(
            cell["x"], 100 * cell["avg_at_k"], mark, ms=13, c=colour, mfc=face, mec=edge, mew=width, zorder=5,
            label=label,
        )  # fmt: skip


def _interval(axes: Axes, cell: dict[str, Any], colour: Colour) -> None:
    """An error bar, for a cell that no line runs through."""
    axes.vlines(cell["x"], 100 * cell["ci_low"], 100 * cell["ci_high"], color=colour, lw=1.6, zorder=4)


def distances(cells: pl.DataFrame, mean: str, low: str, high: str) -> np.ndarray:
    """Distances of an interval's ends from its mean, shape (2, cells), as error bars are given."""
    return np.stack([cells[mean] - cells[low], cells[high] - cells[mean]])


Columns = tuple[str, str, str]  # Of an estimate and the bounds of its interval.
ACCURACY = ("avg_at_k", "ci_low", "ci_high")  # The columns of a cell's accuracy and of its interval.


def draw_points(axes: Axes, line: Line, cells: pl.DataFrame, x: pl.Expr | Columns, y: Columns, **style: Any) -> None:
    """Marks with their intervals, `y` (the columns of an estimate) in points; `x` are places, or the columns of an
    estimate."""
    places = cells.select(x).to_series() if isinstance(x, pl.Expr) else cells[x[0]]
    error = None if isinstance(x, pl.Expr) else distances(cells, *x)
    given = {"ls": "", "marker": line.style.marker, "c": line.colour, "label": line.label} | style
    axes.errorbar(places, 100 * cells[y[0]], xerr=error, yerr=100 * distances(cells, *y), **given)


def draw_ring(axes: Axes, x: pl.Series, y: pl.Series) -> None:
    """Around the cells that a figure points at."""
    axes.plot(x, 100 * y, "o", ms=13, mfc="none", mec=INK, mew=1.3, zorder=6)


def y_label(axes: Axes, text: str) -> None:
    """Panels of a row share their axis, and the first one names it."""
    if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        axes.set_ylabel(text)


def accuracy_axis(axes: Axes) -> None:
    axes.set_ylim(-3, 105)
    y_label(axes, "accuracy (avg@k, %)")


def budget_axis(axes: Axes, ladder: Sequence[int | None]) -> None:
    """Thinking budgets evenly spaced, so that models are compared at equal ones; None is unlimited."""
    axes.set_xticks(range(len(ladder)), [limit(t) for t in ladder])
    axes.set_xlim(-0.5, len(ladder) - 0.5)
    axes.set_xlabel("thinking budget t (tokens)")


def ladder_of(cells: pl.DataFrame) -> list[int | None]:
    """The thinking budgets of a table, ascending, unlimited last."""
    return cells["think_budget"].unique().sort(nulls_last=True).to_list()


def place_on(ladder: Sequence[int | None]) -> pl.Expr:
    """The place of a cell's thinking budget on `budget_axis`."""
    limited = {t: i for i, t in enumerate(ladder) if t is not None}
    return pl.col("think_budget").replace_strict(limited, default=len(limited), return_dtype=pl.Float64)


def log2_ticks(low: float, high: float) -> tuple[float, float, list[tuple[float, str]]]:
    """The ends of a log2 axis around [low, high], and its ticks with their labels: every power of two, two at least."""
    low, high = max(low, 1.0), max(high, 1.0)
    left, right = low / 1.15, high * 1.15
    powers = [2.0**power for power in range(floor(log2(left)), ceil(log2(right)) + 1)]
    if sum(left <= power <= right for power in powers) < 2:
        left, right = powers[0], powers[-1]
    return left, right, [(power, f"{power:.10g}") for power in powers if left <= power <= right]


def log2_axis(axes: Axes, low: float, high: float) -> None:
    """A log2 x axis, as of `log2_ticks`."""
    left, right, ticks = log2_ticks(low, high)
    axes.set_xscale("log", base=2)
    axes.set_xlim(left, right)
    axes.set_xticks(*zip(*ticks, strict=True))
