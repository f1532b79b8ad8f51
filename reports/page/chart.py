"""The main figure of the page: accuracy over tokens sampled, as numbers that the template writes into SVG.

Each benchmark has a panel with all of its cells. A few lines stand out; the others are faint until the legend singles
them out. Colour is the model, mark the strategy, as in every figure. A point is a link to its cell in the reader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import floor, log, log10
from typing import Any, NamedTuple
from urllib.parse import urlencode

import polars as pl

from elastic_core.budget import Budget
from elastic_core.statistics.cost import on_frontier
from elastic_core.strategies import BASELINE, FREE, SERVED
from elastic_core.trajectory import BUDGET, CELL
from reports.content import Setting
from reports.figures import NUM_COLOURS, model_colours
from reports.summary import BASE, main_model, partial
from reports.wording import ordered, plain, sampled, with_bounds

WIDTH, HEIGHT = 480, 290  # Of a panel, in the units of its SVG.
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 12, 10, 46  # Of these, for the axes.
_FEWEST_TICKS = 3
_MAX_LINES = 4  # Most lines of one panel that can be distinguished at a glance.
_MARKS = ("circle", "square", "triangle", "diamond", "cross", "wedge")
_KNOWN_MARKS = {SERVED: "circle", "budget_forcing": "square", BASELINE: "triangle", FREE: "star"}
DRAWING = {"width": WIDTH, "height": HEIGHT, "left": _LEFT, "right": _RIGHT, "bottom": _BOTTOM}
"""What the template draws with."""


class Point(NamedTuple):
    """A cell, in the panel's units: `low` and `high` are the ends of the interval of its accuracy, `told` its numbers
    in words, `address` that of the cell in the reader, `advised` the budget where it is the advised one."""

    x: float
    y: float
    low: float
    high: float
    model: str
    strategy: str
    colour: int
    mark: str
    told: str
    address: str
    frontier: bool
    advised: str
    faint: bool


class Line(NamedTuple):
    """The budgets of a model, strategy and solution budget."""

    model: str
    strategy: str
    colour: int
    path: str
    faint: bool


class Panel(NamedTuple):
    """The chart of one benchmark: lines, those in the background first; points of all cells from left to right; the
    path of the frontier; ticks across and up, as place and label."""

    benchmark: str
    sampled: str
    lines: list[Line]
    points: list[Point]
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
    by_tokens = on_frontier("tokens_mean", "avg_at_k").over("benchmark")
    cells = priced.with_columns(partial=partial(), frontier=by_tokens).sort(*CELL, nulls_last=True)
    colours = model_colours(cells["model"])
    by_colour = sorted(set(cells["model"]), key=colours.__getitem__)
    models = {name: int(colours[name][1:]) % NUM_COLOURS for name in by_colour}
    names = ordered(cells["strategy"], SERVED)
    others = [mark for mark in _MARKS if mark not in _KNOWN_MARKS.values()]
    unknown = [name for name in names if name not in _KNOWN_MARKS]
    strategies = {name: _KNOWN_MARKS.get(name) or others[unknown.index(name) % len(others)] for name in names}
    advised = {
        (each.benchmark, each.model, SERVED, each.budget.think, each.budget.solution): str(each.budget)
        for each in settings
        if each.budget is not None
    }
    panels = []
    for part in cells.partition_by("benchmark", maintain_order=True):
        name, scale, outstanding = part["benchmark"][0], _Scale(part["tokens_mean"].to_list()), _outstanding(part)
        points = [_point(cell, scale, models, strategies, advised, unit, outstanding) for cell in part.to_dicts()]
        lines = sorted(_lines(part, scale, models, outstanding), key=lambda line: not line.faint)
        # The accuracy of the cell before, until the next one is reached.
        best = part.filter("frontier").sort("tokens_mean").select("tokens_mean", "avg_at_k").rows()
        first, *rest = [(scale.x(tokens), scale.y(accuracy)) for tokens, accuracy in best]
        steps = f"M{first[0]},{first[1]}" + "".join(f"H{x}V{y}" for x, y in rest) + f"H{WIDTH - _RIGHT}"
        panels.append(Panel(name, sampled(part), lines, sorted(points), steps, scale.ticks(), scale.up()))
    return Chart(panels, models, strategies)


def _outstanding(cells: pl.DataFrame) -> set[tuple[str, str]]:
    """Models and strategies that stand out: all where they are few; else those of the strategy that servers keep
    budgets by, or of the first one. Of many models only the main one and base."""
    lines = cells.filter(pl.col("strategy") != FREE).select("model", "strategy", "solution_budget").unique()
    if lines.height > _MAX_LINES:
        lines = lines.filter(strategy=ordered(lines["strategy"], SERVED)[0])
    if lines.height > _MAX_LINES:
        lines = lines.filter(pl.col("model").is_in([BASE, main_model(lines["model"])]))
    return {*lines.select("model", "strategy").iter_rows(), *((model, FREE) for model in lines["model"])}


class _Scale:
    """Scales from tokens (logarithmic) and from a share to the units of a panel."""

    def __init__(self, tokens: Sequence[float]) -> None:
        self.low, self.high = max(min(tokens), 1) / 1.12, max(max(tokens), 1) * 1.12

    def x(self, tokens: float) -> float:
        share = log(max(tokens, self.low) / self.low) / log(self.high / self.low)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, accuracy: float) -> float:
        return round(HEIGHT - _BOTTOM - accuracy * (HEIGHT - _TOP - _BOTTOM), 1)

    def ticks(self) -> list[tuple[float, str]]:
        exponents = range(floor(log10(self.low)), floor(log10(self.high)) + 1)
        within: list[float] = []
        for digits in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8)):
            found = [digit * 10.0**exponent for exponent in exponents for digit in digits]
            within = [value for value in found if self.low <= value <= self.high]
            if len(within) >= _FEWEST_TICKS:
                break
        return [(self.x(value), f"{value:,.10g}") for value in within or [self.low, self.high]]

    def up(self) -> list[tuple[float, str]]:
        return [(self.y(percent / 100), str(percent)) for percent in (0, 25, 50, 75, 100)]


def _point(
    cell: Mapping[str, Any],
    scale: _Scale,
    models: Mapping[str, int],
    strategies: Mapping[str, str],
    advised: Mapping[tuple[Any, ...], str],
    unit: str,
    outstanding: Collection[tuple[str, str]],
) -> Point:
    budget = str(Budget(*(cell[name] for name in BUDGET)))
    place = {name: cell[name] for name in ("benchmark", "model", "strategy")}
    key = (*place.values(), *(cell[name] for name in BUDGET))
    notes = {"on the frontier": cell["frontier"], "advised": key in advised, "incomplete": cell["partial"]}
    told = (
        f"{cell['model']}, {plain(cell['strategy'])} at {budget}: accuracy "
        f"{with_bounds(cell['avg_at_k'], cell['ci_low'], cell['ci_high'])} %; {cell['tokens_mean']:,.1f} tokens "
        f"sampled; {unit} {cell['cost']:,.1f}; {cell['num_problems']} problems, {cell['num_trajectories']:,} responses"
    )
    return Point(
        scale.x(cell["tokens_mean"]), scale.y(cell["avg_at_k"]), scale.y(cell["ci_low"]), scale.y(cell["ci_high"]),
        cell["model"], cell["strategy"], models[cell["model"]], strategies[cell["strategy"]],
        "; ".join([told, *(note for note, holds in notes.items() if holds)]),
        f"#reader?{urlencode(place | {'budget': budget})}",
        bool(cell["frontier"]), advised.get(key, ""),
        not cell["frontier"] and key not in advised and (cell["model"], cell["strategy"]) not in outstanding,
    )  # fmt: skip


def _lines(
    cells: pl.DataFrame, scale: _Scale, models: Mapping[str, int], outstanding: Collection[tuple[str, str]]
) -> Iterator[Line]:
    limited = cells.filter(pl.col("strategy") != FREE).sort("think_budget", nulls_last=True)
    by = ["model", "strategy", "solution_budget"]
    for (model, strategy, _), line in limited.partition_by(by, as_dict=True, maintain_order=True).items():
        places = " ".join(f"{scale.x(x)},{scale.y(y)}" for x, y in line.select("tokens_mean", "avg_at_k").iter_rows())
        name = str(model), str(strategy)
        yield Line(*name, models[name[0]], f"M{places}", name not in outstanding)
