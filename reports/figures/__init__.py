"""Files, panels, and lines of cells, shared by all figures.

Each is drawn from a small frame, which is saved as CSV, in the size of a paper's column or of both; title and caption
are in the `.tex`. Colour and filling of marks are the model, shape of marks and line the strategy, in every figure.
Bytes depend on the data and on matplotlib's version only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from itertools import product
from math import ceil, floor, log2
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from elastic_core.strategies import BASELINE, FREE, SERVED
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.system.files import replacing, write_csv, write_text
from reports import latex
from reports.content import ReportFigure
from reports.summary import BASE, TRAINED, main_model, partial
from reports.wording import captioned, limit, ordered, plain, sampled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#333333"

COLUMN, BOTH_COLUMNS = 3.25, 6.75  # Widths of a figure, in inches.
LETTER = 0.06  # Mean width of a letter of the style's size, in inches.
TOKENS_LABEL = "mean tokens sampled"
MAX_ACROSS = 3  # Most panels in a row.
MAX_LINES = 4  # Most lines of a panel that can be distinguished at a glance.
MAX_TICKS = 6  # Most labels of a log2 axis.
PARTIAL = "Crossed marks: cells with fewer trajectories than the fullest cell of their benchmark."

COLOURS = {BASE: "C0", TRAINED: "C1"}
NUM_COLOURS = 10  # In the style file.
_FILLINGS = ("full", "full", "left", "bottom", "right", "top")  # Of marks, by a model's colour; base's are white.


class Style(NamedTuple):
    """How a strategy is drawn: its line, its marker and that one's relative size."""

    line: str
    marker: str
    size: float = 1.0


STYLES = {
    SERVED: Style("-", "o"),
    "budget_forcing": Style("--", "s"),
    BASELINE: Style(":", "^"),
    REASONFLUX_ZERO: Style("-.", "D"),
    FREE: Style("-", "*", 2.2),
}
_LINES = ("-.", "--", ":", "-")
_BESIDE = ((1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1))  # Of a mark.
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
    made = {name: Style(_LINES[i % len(_LINES)], _MARKERS[i % len(_MARKERS)]) for i, name in others}
    return STYLES | made


class Sheet(NamedTuple):
    """What every figure of a report is drawn with: where to, each model's colour, and each strategy's style."""

    directory: Path
    colours: dict[str, str]
    styles: dict[str, Style] = STYLES


def figure_files(sheet: Sheet, name: str, **words: Any) -> ReportFigure:
    """A figure and its files, with the title and caption of `captioned`."""
    files = (sheet.directory / f"{name}.{suffix}" for suffix in ("png", "svg", "pdf", "csv", "tex"))
    return ReportFigure(name, *captioned("figures", name, **words), *files)


@contextmanager
def figure_of(
    num_panels: int, across: int, target: ReportFigure, data: pl.DataFrame, sharey: bool = True
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure and its panels, in rows of `across`; written as PNG, SVG, PDF and data when the block ends, with the
    LaTeX that shows it with its caption."""
    # Without pyplot: it imports slowly, and keeps a backend and every figure in global state.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    num_rows, width = -(-num_panels // across), COLUMN if across == 1 else BOTH_COLUMNS
    with matplotlib.rc_context(fname=str(files("reports").joinpath("elastic.mplstyle"))):
        figure = Figure(figsize=(width, num_rows * (2.3 if across < 3 else 1.9)))
        canvas = FigureCanvasAgg(figure)
        places = list(figure.subplots(num_rows, across, squeeze=False, sharey=sharey).flat)
        for axes in places[num_panels:]:
            axes.set_visible(False)
        yield figure, places[:num_panels]
        # Not by savefig, which draws twice. Without the software's name and version, equal pixels are equal bytes.
        with replacing(target.png) as temporary:
            canvas.print_png(temporary, metadata={"Software": None})
        figure.set_layout_engine("none")  # The PNG has found the layout, of which all have one.
        with replacing(target.svg) as temporary:
            FigureCanvasSVG(figure).print_svg(temporary, metadata={"Date": None, "Creator": None})
        with replacing(target.pdf) as temporary:
            unnamed = {"Creator": None, "Producer": None, "CreationDate": None}
            FigureCanvasPdf(figure).print_pdf(temporary, metadata=unnamed)
    write_text(target.tex, latex.figure(target, is_wide=width > COLUMN))
    with replacing(target.data) as temporary:
        write_csv(data, temporary, float_precision=6)


@contextmanager
def panels_of(
    cells: pl.DataFrame, target: ReportFigure, data: pl.DataFrame, sheet: Sheet | None = None
) -> Iterator[tuple[list[tuple[Axes, pl.DataFrame]], dict[str, Any]]]:
    """Axes and cells of each benchmark, or with a sheet of each benchmark and model, models of a benchmark side by
    side; and the legend, label → handle, which has the labelled lines unless the block fills it. The legend stands
    below all panels."""
    by = ["benchmark"] if sheet is None else ["benchmark", "model"]
    parts = cells.sort(by, maintain_order=True).partition_by(by, maintain_order=True)
    num_models = cells["model"].n_unique()
    across = min(len(parts) if sheet is None or num_models == 1 else num_models, MAX_ACROSS)
    with figure_of(len(parts), across, target, data) as (figure, places):
        panels = list(zip(places, parts, strict=True))
        for axes, part in panels:
            title = ", ".join(part[name][0] for name in by)
            colour: dict[str, Any] = {} if sheet is None else {"color": sheet.colours[part["model"][0]]}
            axes.set_title(f"{title}\n({sampled(part)})", **colour)
        legend: dict[str, Any] = {}
        yield panels, legend
        if not legend:
            beside = label_lines(figure, places)
            found = [entry for axes in places for entry in zip(*axes.get_legend_handles_labels(), strict=True)]
            legend |= {label: handle for handle, label in found if label not in beside}
        legend_below(figure, legend)


def label_lines(figure: Figure, places: Sequence[Axes]) -> set[str]:
    """Write labels beside their lines, as near to the end as one touches nothing, in the first panel that has room;
    return those that found a place."""
    from matplotlib.path import Path as Curve
    from matplotlib.transforms import Bbox

    def touches(box: Bbox, curves: Iterable[Curve]) -> bool:
        return any(curve.intersects_bbox(box, filled=False) or box.count_contains(curve.vertices) for curve in curves)

    figure.draw_without_rendering()  # Finds the layout.
    placed: dict[str, Curve] = {}
    for axes in places:
        curves = {line: line.get_transform().transform_path(line.get_path()) for line in axes.lines}
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if label in placed or line not in curves or line.get_linestyle() == "None":
                continue
            others = [curve for each, curve in curves.items() if each is not line and str(each.get_label())[0] != "_"]
            marks, words = np.array(line.get_xydata())[::-1], label.replace(" (", "\n(")
            alone = [at for at in marks if not touches(Bbox([axes.transData.transform(at)] * 2).padded(12), others)]
            for at, (x, y) in product(alone, _BESIDE):
                text = axes.annotate(words, at, (5 * x, 5 * y), textcoords="offset points", size=7)
                text.set(c=line.get_color(), ha=("center", "left", "right")[x], va=("center", "bottom", "top")[y])
                box = text.get_window_extent()
                inside = axes.bbox.count_contains(box.corners()) == 4
                if inside and not touches(box.padded(6), [*curves.values(), *placed.values()]):
                    placed[label] = Curve(box.corners())
                    break
                text.remove()
    return set(placed)


def legend_below(figure: Figure, entries: dict[str, Any]) -> None:
    """Put label → handle below all panels, in as few rows as they fit: the figure grows by them."""
    widest = 0.4 + LETTER * max(map(len, entries), default=0)
    rows = -(-len(entries) // max(1, int(figure.get_figwidth() / widest)))
    figure.set_figheight(figure.get_figheight() + 0.1 + 0.15 * rows)
    figure.legend(entries.values(), entries.keys(), ncols=-(-len(entries) // max(1, rows)), loc="outside lower center")


def outstanding(cells: pl.DataFrame) -> pl.Expr:
    """Whether a cell is one of those that a panel shows apart: any where lines are few; else those of the strategy that
    servers keep budgets by, or of the first one, and of vanilla; else not of vanilla; of many models only base and the
    main one."""
    lines = cells.filter(pl.col("strategy") != FREE).select("model", "strategy", "solution_budget").unique()
    first, shown = ordered(lines["strategy"], SERVED)[:1], pl.lit(True)
    for kept in ([*first, BASELINE, FREE], [*first, FREE]):
        if lines.height > MAX_LINES:
            shown = pl.col("strategy").is_in(kept)
            lines = lines.filter(shown)
    if lines.height > MAX_LINES:
        shown &= pl.col("model").is_in([BASE, main_model(lines["model"])])
    return shown


def distinct(cells: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The `outstanding` cells, and the sentence on the others for the caption."""
    shown = cells.filter(outstanding(cells))
    if shown.height == cells.height:
        return cells, ""
    drawn = " and ".join(map(plain, ordered(set(shown["strategy"]) - {FREE}, SERVED)))
    if (models := ordered(shown["model"], BASE)) != ordered(cells["model"], BASE):
        drawn += f", of {' and '.join(models)}"
    return shown, f" Drawn: {drawn}; the tables have the others."


class Line(NamedTuple):
    """The cells of one model, strategy and solution budget, and how they are drawn; `dots` are shape and filling of its
    marks, for `Axes.plot`."""

    cells: pl.DataFrame
    strategy: str
    colour: str
    style: Style
    label: str
    dots: dict[str, Any]


def lines_of(cells: pl.DataFrame, sheet: Sheet) -> list[Line]:
    """Every line of a table in the legend's order, its cells in the order they have."""
    found = []
    lines = cells.partition_by("model", "strategy", "solution_budget", as_dict=True)
    for (model, strategy, solution), line in lines.items():
        style, colour = sheet.styles[strategy], sheet.colours[model]
        label = f"{model}, {plain(strategy)}" + ("" if strategy == FREE else f" (s = {limit(solution)})")
        order = model, list(sheet.styles).index(strategy), solution is None, solution
        face, filling = "white" if model == BASE else colour, _FILLINGS[int(colour[1:]) % len(_FILLINGS)]
        dots = {"marker": style.marker, "fillstyle": filling, "mfc": face, "mfcalt": "white", "mew": 0.9}
        found.append((order, Line(line, strategy, colour, style, label, dots)))
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
        style: dict[str, Any] = {"ls": line.style.line, "lw": 1.2, "ms": 4, "c": line.colour, "label": line.label}
        axes.plot(shown["x"], 100 * shown["avg_at_k"], **style, **line.dots)
        _cross(axes, shown)


def draw_free(axes: Axes, cells: pl.DataFrame, x: pl.Expr, sheet: Sheet) -> None:
    """A star with its interval for each model without a budget."""
    free = cells.with_columns(partial=partial()).filter(strategy=FREE)
    for line in lines_of(free.with_columns(x=x), sheet):
        cell, style = line.cells.row(0, named=True), line.dots | {"ls": "", "ms": 8.5, "c": line.colour, "zorder": 5}
        _interval(axes, cell, line.colour)
        axes.plot(cell["x"], 100 * cell["avg_at_k"], label=line.label, **style)
        _cross(axes, line.cells)


def _interval(axes: Axes, cell: dict[str, Any], colour: str) -> None:
    """An error bar, for a cell that no line runs through."""
    axes.vlines(cell["x"], 100 * cell["ci_low"], 100 * cell["ci_high"], color=colour, lw=1.2, zorder=4)


def _cross(axes: Axes, cells: pl.DataFrame) -> None:
    """Cross out the marks of partial cells."""
    crossed = cells.filter("partial")
    axes.plot(crossed["x"], 100 * crossed["avg_at_k"], "x", ms=5, mew=0.8, c=INK, zorder=6)


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
    given = {"ls": "", "c": line.colour, "label": line.label} | line.dots | style
    axes.errorbar(places, 100 * cells[y[0]], xerr=error, yerr=100 * distances(cells, *y), **given)


def draw_ring(axes: Axes, x: pl.Series, y: pl.Series) -> None:
    """Around the cells that a figure points at."""
    axes.plot(x, 100 * y, "o", ms=10, mfc="none", mec=INK, mew=1, zorder=6)


def y_label(axes: Axes, text: str) -> None:
    """Panels of a row share their axis, and the first one names it."""
    if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        axes.set_ylabel(text)


def accuracy_axis(axes: Axes) -> None:
    axes.set_ylim(-3, 105)
    y_label(axes, "accuracy (avg@k, %)")


def budget_axis(axes: Axes, ladder: Sequence[int | None]) -> None:
    """Thinking budgets evenly spaced, so that models are compared at equal ones; None is unlimited."""
    places(axes, [limit(t) for t in ladder])
    axes.set_xlabel("thinking budget t (tokens)")


def places(axes: Axes, labels: Sequence[str]) -> None:
    """An x axis of places with labels, which stand upright where a panel has no room for them side by side."""
    across = axes.get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    room = axes.get_figure().get_figwidth() / across - 0.5  # type: ignore[union-attr]
    crowded = LETTER * (max(len(line) for label in labels for line in label.split("\n")) + 1) * len(labels) > room
    axes.set_xticks(range(len(labels)), labels, rotation=90 if crowded else 0)
    axes.set_xlim(-0.6, len(labels) - 0.4)


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
    """A log2 x axis, as of `log2_ticks`, with fewer labels where there are many."""
    left, right, ticks = log2_ticks(low, high)
    axes.set_xscale("log", base=2)
    axes.set_xlim(left, right)
    axes.set_xticks(*zip(*ticks[:: -(-len(ticks) // MAX_TICKS)], strict=True))
