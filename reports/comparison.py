"""Cells side by side, for the terminal: models and strategies of one table, as a sweep prints when it is done, and two
tables against each other, as `elastic compare` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

import polars as pl
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

from elastic_core.budget import Budget
from elastic_core.statistics.accuracy import mean_score, paired_differences, score_difference
from elastic_core.statistics.budgets import anytime_accuracy
from elastic_core.statistics.curves import (
    area_differences,
    log_law,
    read_curve,
)
from elastic_core.statistics.estimates import common_problems, length_error, mean_tokens, paired_ratio, problem_table
from elastic_core.trajectory import BUDGET, CELL
from reports.claims import BASE, VANILLA
from reports.summary import summarize
from reports.verdict import readable, unreadable
from reports.wording import ordered, plain, sampled, with_bounds

ASKED_LENGTH = ("l1_exact", "l1_max")
"""Strategies whose prompt asks for a length of think_budget + solution_budget tokens."""

LEGEND = """\
Accuracy is avg@k in percent [95 % interval]. Differences are in percentage points, with * if the interval excludes 0
and with the number of common problems in brackets. Tokens are those sampled per trajectory, ± half of the 95 %
interval. n is problems × samples, or problems. Error is tokens sampled minus tokens asked for. Anytime is the
mean accuracy over thinking budgets, uniform in log t, at the largest solution budget. "At equal tokens" is the
difference of the mean accuracy over log2 tokens, in the range that both curves reach. Slope is the points gained per
doubling of the thinking budget from 16 tokens up, and fit the p-value of these budgets lying on a line. Intervals:
Clopper-Pearson's for accuracy; Student's t over problems for tokens, differences and slopes; a bootstrap over problems
at equal tokens."""
PAIRS_LEGEND = """\
Accuracy is avg@k in percent over the n problems that both have [95 % interval]. The difference is in percentage points,
paired by problem, with * if its interval excludes 0. Intervals: Clopper-Pearson's for accuracy; Student's t over
problems for tokens, for their ratio and for differences. Each interval is of its own cell: among many cells without a
difference one in twenty excludes 0. Tokens are those sampled per trajectory; their ratio is paired by problem."""

_DIMENSIONS = (("model",), ("strategy",), BUDGET)
_ENDS = ("", "_low", "_high")


def render_comparison(rows: pl.DataFrame) -> str:
    """The comparison of a trajectory table as plain text, for a terminal of any width: lines are never folded.

    For each benchmark:

    - a table per strategy, a line per budget: avg@k and tokens of each model, and models against the first;
    - a table per model, a line per budget: strategies against the first;
    - a table of curves, a line per model and strategy: anytime accuracy, paired differences at equal
      tokens, and the log-linear law.

    The first model is `base`, and the first strategy `vanilla`, or where the table has none the first by name. What
    makes a model's numbers say little follows at the end.

    Raises:
        ValueError: as `reports.summary.summarize`.
    """
    summary = summarize(rows)
    models, strategies = ordered(summary["model"], BASE), ordered(summary["strategy"], VANILLA)
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
    error = ["error"] if at["strategy"] in ASKED_LENGTH else []
    columns = [column for model in present for column in (model, "tokens", *error)]
    table = _table(["budget"], [*columns, *(f"{model} − {models[0]}" for model in seconds), "n"])
    for budget, line in _by_budget(cells):
        shown = []
        for model in present:
            cell = line.filter(model=model).to_dicts()
            shown += _cell(cell[0]) if cell else ["", ""]
            if error:
                shown.append(_error(rows.filter(model=model, strategy=at["strategy"]), budget) if cell else "")
        shown += [_found(differences, model, budget) for model in seconds]
        n = sampled(line).replace(" problems", "").replace(" samples", "")
        table.add_row(str(budget), *shown, n)
    return [f"{at['benchmark']}, {plain(at['strategy'])}: accuracy and tokens", table]


def _strategies(differences: pl.DataFrame, at: dict[str, str]) -> list[RenderableType]:
    """Strategies across, budgets down, of one benchmark and model."""
    if differences.is_empty():
        return []
    first, seconds = differences["first"][0], differences["second"].unique().sort().to_list()
    table = _table(["budget"], [f"{plain(strategy)} − {plain(first)}" for strategy in seconds])
    for budget, _ in _by_budget(differences):
        table.add_row(str(budget), *(_found(differences, strategy, budget) for strategy in seconds))
    return [f"{at['benchmark']}, {at['model']}: accuracy minus that of {plain(first)}", table]


def _curves(rows: pl.DataFrame, models: list[str], strategies: list[str], benchmark: str) -> list[RenderableType]:
    """Every curve of one benchmark that spans a range of tokens."""
    parts = rows.partition_by("model", "strategy", as_dict=True)
    curves = {key: curve for key, part in parts.items() if (curve := read_curve(part)).spans}
    if not curves:
        return []
    by_strategy = area_differences(rows, "strategy", strategies[0])
    by_model = area_differences(rows, "model", models[0])
    versus = f"− {plain(strategies[0])}, at equal tokens", f"− {models[0]}, at equal tokens"
    anytime = anytime_accuracy(problem_table(rows, ["score"], CELL)).sort("solution_budget", nulls_last=True)
    table = _table(["model", "strategy"], ["cells", "tokens", "anytime", *versus, "slope", "R²", "fit", "n"])
    for model, strategy in sorted(curves, key=lambda key: (models.index(key[0]), strategies.index(key[1]))):
        curve = curves[model, strategy]
        law = log_law(parts[model, strategy])
        tokens = 2**curve.log_tokens
        at_any = anytime.filter(model=model, strategy=strategy).select("anytime", "anytime_low", "anytime_high").rows()
        table.add_row(
            model,
            plain(strategy),
            str(curve.num_cells),
            f"{tokens.min():.1f} to {tokens.max():.1f}",
            with_bounds(*at_any[-1]) if at_any else "",
            _difference(by_strategy.filter(model=model, second=strategy)),
            _difference(by_model.filter(strategy=strategy, second=model)),
            _marked(*law.slope[:3]) if law else "",
            f"{law.r2:.2f}" if law else "",
            "" if law is None or law.lack_of_fit is None else f"{law.lack_of_fit:.2g}",
            str(len(curve.problems)),
        )
    return [f"{benchmark}: accuracy over log2 tokens", table]


def _difference(pairs: pl.DataFrame) -> str:
    """The one pair of a table of differences, with its problems; nothing where there is none."""
    found = pairs.select("difference", "low", "high", "num_problems").rows()
    return f"{_marked(*found[0][:3])} ({found[0][3]})" if found else ""


def _by_budget(cells: pl.DataFrame) -> Iterable[tuple[Budget, pl.DataFrame]]:
    """The budgets of a table with their rows, from the smallest up, unlimited ones last."""
    parts = cells.sort(*BUDGET, nulls_last=True).partition_by(*BUDGET, as_dict=True)
    return [(Budget(*key), part) for key, part in parts.items()]


def _at(rows: pl.DataFrame, budget: Budget) -> pl.DataFrame:
    return rows.filter(
        pl.col("think_budget").eq_missing(budget.think), pl.col("solution_budget").eq_missing(budget.solution)
    )


def _found(differences: pl.DataFrame, second: str, budget: Budget) -> str:
    """The difference of `second` from the first at a budget; nothing where they have no problem in common there."""
    return _difference(_at(differences.filter(second=second), budget))


def _error(rows: pl.DataFrame, budget: Budget) -> str:
    return "" if budget.total is None else with_bounds(*length_error(_at(rows, budget))[:3], "+.1f", scale=1)


def _cell(cell: dict[str, Any]) -> list[str]:
    high = cell["tokens_mean_high"]
    half = "∞" if high is None else f"{high - cell['tokens_mean']:.1f}"
    accuracy = with_bounds(cell["avg_at_k"], cell["ci_low"], cell["ci_high"])
    return [accuracy, f"{cell['tokens_mean']:.1f} ± {half}"]


def _marked(difference: float, low: float, high: float) -> str:
    # The place of the mark is kept, so that figures stay below each other.
    return with_bounds(difference, low, high, "+.1f") + ("*" if low > 0 or high < 0 else " ")


def _table(names: Iterable[str], figures: Iterable[str]) -> Table:
    # Its title is a line of its own: a table folds one that is wider than itself.
    table = Table(box=box.SIMPLE_HEAD)
    for column in names:
        table.add_column(column)
    for column in figures:
        table.add_column(column, justify="right")
    return table


def paired_cells(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Every pair of cells that belong together: of one benchmark, and equal in model, strategy and budget, except where
    each side has only one, which are then each other's.

    Args:
        first, second: rows of one or more cells, with problem, score, tokens and the columns of `CELL`.

    Returns:
        A row per pair: benchmark, model, strategy, budget (both, where they differ); accuracy_a, accuracy_b, difference
        (b minus a), tokens_a, tokens_b, token_ratio (b over a), each with its bounds NAME_low and NAME_high, null where
        there is none; num_problems (common ones), num_trajectories (of both). Sorted by benchmark, model, strategy and
        budget.

    Raises:
        ValueError: when no two belong together, or a score is missing or outside [0, 1].
    """
    match = ["benchmark", *(name for names in _DIMENSIONS if _vary(first, second, names) for name in names)]
    ours, theirs = (rows.partition_by(match, as_dict=True) for rows in (first, second))
    found = [_pair(ours[key], theirs[key]) for key in ours if key in theirs]
    pairs = [pair for pair in found if pair is not None]
    if not pairs:
        raise ValueError(f"no two cells agree in {', '.join(match)} and have a problem in common")
    table = pl.DataFrame(pairs, infer_schema_length=None)
    return table.sort("benchmark", "model", "strategy", *BUDGET, nulls_last=True).drop(BUDGET)


def _vary(first: pl.DataFrame, second: pl.DataFrame, names: Sequence[str]) -> bool:
    """Whether a side has several values, so that it must be said which belong together."""
    return any(rows.select(names).n_unique() > 1 for rows in (first, second))


def _pair(a: pl.DataFrame, b: pl.DataFrame) -> dict[str, Any] | None:
    """One row of the table; None without a problem in common."""
    a, b = common_problems(a, b)
    if a.is_empty():
        return None
    ours, theirs = (problem_table(rows, ["score", "tokens"]) for rows in (a, b))
    difference = score_difference(theirs, ours)
    # A model that never says a word has no tokens to divide by.
    ratio = paired_ratio(b, a, "tokens") if ours["tokens"].sum() else None
    cells = [{name: rows[name][0] for name in CELL} for rows in (a, b)]
    budgets = [Budget(cell["think_budget"], cell["solution_budget"]) for cell in cells]
    return {
        "benchmark": cells[0]["benchmark"],
        "model": _both(*(cell["model"] for cell in cells)),
        "strategy": _both(*(cell["strategy"] for cell in cells)),
        "budget": _both(*map(str, budgets)),
        **mean_score(ours).columns("accuracy_a"),
        **mean_score(theirs).columns("accuracy_b"),
        **difference.columns("difference"),
        **mean_tokens(ours, "tokens").columns("tokens_a"),
        **mean_tokens(theirs, "tokens").columns("tokens_b"),
        **(ratio.columns("token_ratio") if ratio else dict.fromkeys(f"token_ratio{end}" for end in _ENDS)),
        "num_problems": difference.num_problems,
        "num_trajectories": difference.num_trajectories,
        **{name: cells[0][name] for name in BUDGET},
    }


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} → {b}"


def render_pairs(table: pl.DataFrame, first: str, second: str) -> str:
    """The table of `paired_cells` as plain text, for a terminal of any width; `first` and `second` say what A and B
    are."""
    names = ("benchmark", "model", "strategy", "budget")
    shown = _table(names, ["A", "B", "B − A", "tokens A", "tokens B", "B / A", "n"])
    for row in table.iter_rows(named=True):
        shown.add_row(
            *(row[name] for name in names),
            *(_bounded(row, name) for name in ("accuracy_a", "accuracy_b")),
            _marked(*(row[f"difference{end}"] for end in _ENDS)),
            *(_bounded(row, name, scale=1) for name in ("tokens_a", "tokens_b")),
            _bounded(row, "token_ratio", ".2f", scale=1),
            str(row["num_problems"]),
        )
    return render(f"A is {first}", f"B is {second}", shown, PAIRS_LEGEND)


def _bounded(row: Mapping[str, Any], name: str, form: str = ".1f", scale: float = 100) -> str:
    mean, low, high = (row[f"{name}{end}"] for end in _ENDS)
    return "" if mean is None else with_bounds(mean, low, high, form, scale)


def metric_name(quantity: str, row: Mapping[str, Any]) -> str:
    """One metric per curve, whatever characters its names have."""
    words = "/".join([quantity, *(row[name] for name in ("benchmark", "model", "strategy"))])
    return words.replace(" → ", "-to-").replace(">", "-then-").replace("@", "-seed-")
