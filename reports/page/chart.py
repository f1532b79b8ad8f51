"""The main figure of the page: accuracy over tokens sampled, as numbers that the template writes into SVG.

Each benchmark has a panel with all of its cells. A few lines stand out; the others are faint until the legend singles
them out. Colour, mark and axis are those of the other figures. A point is a link to its cell in the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import log
from typing import Any, NamedTuple
from urllib.parse import urlencode

import polars as pl

from elastic_core.statistics.cost import on_frontier
from elastic_core.strategies import FREE, SERVED
from elastic_core.trajectory import CELL
from reports.content import Setting
from reports.figures import NUM_COLOURS, log2_ticks, model_colours, outstanding, strategy_styles
from reports.summary import partial
from reports.wording import budget_text, ordered, plain, sampled, with_bounds

WIDTH, HEIGHT = 480, 290  # Of a panel, in the units of its SVG.
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 12, 10, 46  # Of these, for the axes.
DRAWING = {"width": WIDTH, "height": HEIGHT, "left": _LEFT, "right": _RIGHT, "bottom": _BOTTOM}
"""What the template draws with."""


class Panel(NamedTuple):
    """The chart of one benchmark, in the panel's units.

    Attributes:
        lines: model, strategy, path and faint, those in the background first.
        points: cells from left to right, with x, y, the ends `low` and `high` of the interval, the numbers in words,
            the address in the reader, and the budget where it is advised.
        frontier: its path.
        across, up: ticks, as place and label.
    """

    benchmark: str
    sampled: str
    lines: list[dict[str, Any]]
    points: list[dict[str, Any]]
    frontier: str
    across: list[tuple[float, str]]
    up: list[tuple[float, str]]


class Chart(NamedTuple):
    """The panels and their legend: the number of each model's colour, the mark of each strategy."""

    panels: list[Panel]
    models: dict[str, int]
    strategies: dict[str, str]


def main_chart(priced: pl.DataFrame, settings: Iterable[Setting], unit: str) -> Chart:
    """The panels of every benchmark, from `reports.tables.costs.priced` in `unit`, with marks on the advised
    budgets."""
    advised = [(each.benchmark, each.model, SERVED, str(each.budget)) for each in settings if each.budget is not None]
    keys = pl.DataFrame(advised, ["benchmark", "model", "strategy", "budget"], orient="row").with_columns(
        advised="budget"
    )
    by_tokens = on_frontier("tokens_mean", "avg_at_k").over("benchmark")
    cells = priced.with_columns(partial=partial(), frontier=by_tokens, budget=budget_text()).sort(
        *CELL, nulls_last=True
    )
    cells = cells.join(keys.cast(pl.String), on=keys.columns[:4], how="left", maintain_order="left")
    colours = model_colours(cells["model"])
    models = {name: int(colours[name][1:]) % NUM_COLOURS for name in sorted({*cells["model"]}, key=colours.__getitem__)}
    styles = strategy_styles(cells["strategy"])
    strategies = {name: styles[name].marker for name in ordered(cells["strategy"], SERVED)}
    return Chart(
        [_panel(part, unit) for part in cells.partition_by("benchmark", maintain_order=True)], models, strategies
    )


def _panel(cells: pl.DataFrame, unit: str) -> Panel:
    cells = cells.with_columns(faint=~outstanding(cells))
    left, right, ticks = log2_ticks(min(cells["tokens_mean"]), max(cells["tokens_mean"]))

    def x(tokens: float) -> float:
        share = log(max(tokens, left) / left) / log(right / left)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(accuracy: float) -> float:
        return round(HEIGHT - _BOTTOM - accuracy * (HEIGHT - _TOP - _BOTTOM), 1)

    points = []
    for cell in cells.iter_rows(named=True):
        address = urlencode({name: cell[name] for name in ("benchmark", "model", "strategy", "budget")})
        drawn = {
            "x": x(cell["tokens_mean"]),
            "y": y(cell["avg_at_k"]),
            "low": y(cell["ci_low"]),
            "high": y(cell["ci_high"]),
        }
        faint = cell["faint"] and not cell["frontier"] and not cell["advised"]
        points.append(cell | drawn | {"faint": faint, "told": _told(cell, unit), "address": f"#reader?{address}"})
    best = [point for point in points if point["frontier"]]
    # The accuracy of the cell before, until the next one is reached.
    first, *rest = sorted(best, key=lambda point: point["tokens_mean"])
    steps = f"M{first['x']},{first['y']}" + "".join(f"H{each['x']}V{each['y']}" for each in rest)
    up = [(y(percent / 100), str(percent)) for percent in (0, 25, 50, 75, 100)]
    return Panel(
        cells["benchmark"][0],
        sampled(cells),
        sorted(_lines(cells, x, y), key=lambda line: not line["faint"]),
        sorted(points, key=lambda point: (point["x"], point["y"], point["low"], point["high"])),
        f"{steps}H{WIDTH - _RIGHT}",
        [(x(tokens), label) for tokens, label in ticks],
        up,
    )


def _told(cell: dict[str, Any], unit: str) -> str:
    notes = {"on the frontier": cell["frontier"], "advised": cell["advised"], "incomplete": cell["partial"]}
    told = (
        f"{cell['model']}, {plain(cell['strategy'])} at {cell['budget']}: accuracy "
        f"{with_bounds(cell['avg_at_k'], cell['ci_low'], cell['ci_high'])} %; {cell['tokens_mean']:,.1f} tokens "
        f"sampled; {unit} {cell['cost']:,.1f}; {cell['num_problems']} problems, {cell['num_trajectories']:,} responses"
    )
    return "; ".join([told, *(note for note, holds in notes.items() if holds)])


def _lines(cells: pl.DataFrame, x: Callable[[float], float], y: Callable[[float], float]) -> Iterable[dict[str, Any]]:
    """The budgets of each model, strategy and solution budget."""
    limited = cells.filter(pl.col("strategy") != FREE).sort("think_budget", nulls_last=True)
    for line in limited.partition_by("model", "strategy", "solution_budget", maintain_order=True):
        places = " ".join(
            f"{x(tokens)},{y(score)}" for tokens, score in line.select("tokens_mean", "avg_at_k").iter_rows()
        )
        yield line.row(0, named=True) | {"path": f"M{places}"}
