"""Models and strategies side by side at equal budget, for the terminal: what a sweep prints when it is done."""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO
from typing import Any

import polars as pl
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

from elastic_core.budget import Budget
from elastic_core.statistics.accuracy import paired_differences
from elastic_core.statistics.curves import MIN_LAW_CELLS, Curve, area, area_difference, log_law, overlap, read_curve
from elastic_core.statistics.estimates import Estimate
from elastic_core.statistics.responses import length_error, readable, unreadable
from elastic_core.trajectory import BUDGET
from reports.claims import BASE, signed
from reports.drawing import sampled
from reports.summary import COLUMNS, summarize

VANILLA = "vanilla"
ASKED_LENGTH = ("l1_exact", "l1_max")
"""Strategies whose prompt asks for a length of think_budget + solution_budget tokens."""

LEGEND = """\
Accuracy is avg@k in percent [95 % interval]; differences are in percentage points, * where the interval excludes 0,
(n) the problems in common. Tokens are those sampled per trajectory, ± half of the 95 % interval. n is problems ×
samples, or problems. Error is tokens sampled minus tokens asked for. Area is the mean accuracy over log2 tokens along a
curve, its differences over the tokens both curves reach; slope is the points gained per doubling of tokens."""


def render_comparison(rows: pl.DataFrame) -> str:
    """The comparison of a trajectory table as plain text, for a terminal of any width: lines are never folded.

    For each benchmark:

    - a table per strategy, a line per budget: avg@k and tokens of each model, and models against the first;
    - a table per model, a line per budget: strategies against the first;
    - a table of curves, a line per model and strategy: area, its paired differences, and the log-linear law.

    The first model is `base`, and the first strategy `vanilla`, or where the table has none the first by name. What
    makes a model's numbers say little follows at the end.

    Raises:
        ValueError: as `reports.summary.summarize`.
    """
    rows = rows.select(COLUMNS)
    summary = summarize(rows)
    models, strategies = _ordered(summary["model"], BASE), _ordered(summary["strategy"], VANILLA)
    by_model = paired_differences(rows, "model", models[0]).filter(first=models[0])
    by_strategy = paired_differences(rows, "strategy", strategies[0]).filter(first=strategies[0])
    tables: list[RenderableType] = []
    for benchmark in summary["benchmark"].unique().sort():
        part, cells = rows.filter(benchmark=benchmark), summary.filter(benchmark=benchmark)
        for strategy in strategies:
            at = {"benchmark": benchmark, "strategy": strategy}
            tables += _accuracy(cells.filter(strategy=strategy), by_model.filter(**at), part, models, at)
        for model in models:
            at = {"benchmark": benchmark, "model": model}
            tables += _strategies(by_strategy.filter(**at), at)
        tables += _curves(part, models, strategies, benchmark)
    remarks = [sentence for model in readable(rows) for sentence in unreadable(model)]
    return render(*tables, LEGEND, *remarks)


def render(*parts: RenderableType) -> str:
    """Tables as plain text for a terminal, as wide as they need: a folded figure is misread."""
    out = StringIO()
    console = Console(file=out, width=10_000, color_system=None, markup=False, emoji=False, highlight=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _accuracy(
    cells: pl.DataFrame, differences: pl.DataFrame, rows: pl.DataFrame, models: list[str], at: dict[str, str]
) -> list[RenderableType]:
    """Models across, budgets down, of one benchmark and strategy."""
    if cells.is_empty():
        return []
    present = [model for model in models if model in cells["model"]]
    seconds = [model for model in present if model in differences["second"]]
    errors = at["strategy"] in ASKED_LENGTH
    table = _table("budget")
    for model in present:
        for column in (model, "tokens", *(["error"] if errors else [])):
            table.add_column(column, justify="right")
    for model in seconds:
        table.add_column(f"{model} − {models[0]}", justify="right")
    table.add_column("n", justify="right")
    for budget, line in _by_budget(cells):
        shown = []
        for model in present:
            cell = line.filter(model=model).to_dicts()
            shown += _cell(cell[0]) if cell else ["", ""]
            if errors:
                shown.append(_error(rows.filter(model=model, strategy=at["strategy"]), budget) if cell else "")
        shown += [_found(differences, model, budget) for model in seconds]
        n = sampled(line["num_problems"].to_list(), line["num_samples"].to_list())
        table.add_row(str(budget), *shown, n.replace(" problems", "").replace(" samples", ""))
    return [f"{at['benchmark']}, {_name(at['strategy'])}: accuracy and tokens", table]


def _strategies(differences: pl.DataFrame, at: dict[str, str]) -> list[RenderableType]:
    """Strategies across, budgets down, of one benchmark and model."""
    if differences.is_empty():
        return []
    first, seconds = differences["first"][0], differences["second"].unique().sort().to_list()
    table = _table("budget")
    for strategy in seconds:
        table.add_column(f"{_name(strategy)} − {_name(first)}", justify="right")
    for budget, _ in _by_budget(differences):
        table.add_row(str(budget), *(_found(differences, strategy, budget) for strategy in seconds))
    return [f"{at['benchmark']}, {at['model']}: accuracy minus that of {_name(first)}", table]


def _curves(rows: pl.DataFrame, models: list[str], strategies: list[str], benchmark: str) -> list[RenderableType]:
    """Area and law of every curve of one benchmark that spans a range of tokens."""
    parts = rows.partition_by("model", "strategy", as_dict=True)
    read = {key: read_curve(part) for key, part in parts.items()}
    curves = {key: curve for key, curve in read.items() if curve.spans}
    if not curves:
        return []
    table = _table("model", "strategy")
    versus = f"area − {_name(strategies[0])}", f"area − {models[0]}"
    for column in ("cells", "tokens", "area", *versus, "slope", "R²", "n"):
        table.add_column(column, justify="right")
    for model, strategy in sorted(curves, key=lambda key: (models.index(key[0]), strategies.index(key[1]))):
        curve = curves[model, strategy]
        law = log_law(curve) if curve.num_cells >= MIN_LAW_CELLS else None
        tokens = 2**curve.log_tokens
        table.add_row(
            model,
            _name(strategy),
            str(curve.num_cells),
            f"{tokens.min():.1f} to {tokens.max():.1f}",
            _percent(area(curve)),
            _against(curve, curves.get((model, strategies[0]))),
            _against(curve, curves.get((models[0], strategy))),
            _points(law.slope) if law else "",
            f"{law.r2:.2f}" if law else "",
            str(len(curve.problems)),
        )
    return [f"{benchmark}: accuracy over log2 tokens", table]


def _against(curve: Curve, other: Curve | None) -> str:
    if other is None or other is curve or not overlap(curve, other):
        return ""
    difference = area_difference(curve, other)
    return f"{_points(difference)} ({difference.num_problems})"


def _by_budget(cells: pl.DataFrame) -> Iterable[tuple[Budget, pl.DataFrame]]:
    """The budgets of a table with their rows, from the smallest up, unlimited ones last."""
    ordered = cells.sort(*BUDGET, nulls_last=True)
    parts = ordered.partition_by(*BUDGET, as_dict=True, maintain_order=True)
    return [(Budget(*key), part) for key, part in parts.items()]


def _at(rows: pl.DataFrame, budget: Budget) -> pl.DataFrame:
    return rows.filter(
        pl.col("think_budget").eq_missing(budget.think), pl.col("solution_budget").eq_missing(budget.solution)
    )


def _found(differences: pl.DataFrame, second: str, budget: Budget) -> str:
    """The difference of `second` from the first at a budget; nothing where they have no problem in common there."""
    found = _at(differences.filter(second=second), budget).to_dicts()
    if not found:
        return ""
    row = found[0]
    difference = Estimate(row["difference"], *(row[name] for name in Estimate._fields[1:]))
    return f"{_points(difference)} ({difference.num_problems})"


def _error(rows: pl.DataFrame, budget: Budget) -> str:
    if budget.total is None:
        return ""
    error = length_error(_at(rows, budget))
    return f"{error.mean:+.1f} [{error.low:+.1f}, {error.high:+.1f}]"


def _cell(cell: dict[str, Any]) -> list[str]:
    accuracy = f"{100 * cell['avg_at_k']:.1f} [{100 * cell['ci_low']:.1f}, {100 * cell['ci_high']:.1f}]"
    high = cell["tokens_mean_high"]
    half = "∞" if high is None else f"{high - cell['tokens_mean']:.1f}"
    return [accuracy, f"{cell['tokens_mean']:.1f} ± {half}"]


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.mean:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def _points(estimate: Estimate) -> str:
    # The place of the mark is kept, so that figures stay below each other.
    mark = "*" if estimate.excludes_zero else " "
    return f"{signed(estimate)}{mark}"


def _table(*columns: str) -> Table:
    # Its title is a line of its own: a table folds one that is wider than itself.
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column)
    return table


def _ordered(names: pl.Series, first: str) -> list[str]:
    return sorted(names.unique(), key=lambda name: (name != first, name))


def _name(strategy: str) -> str:
    return strategy.replace("_", " ")
