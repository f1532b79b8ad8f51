"""Two trajectory tables against each other, cell by cell and paired by problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from rich import box
from rich.table import Table

from elastic_core.budget import Budget
from elastic_core.statistics.accuracy import mean_score, score_difference
from elastic_core.statistics.estimates import Estimate, check_scores, common_problems, problem_table
from elastic_core.statistics.responses import mean_tokens, paired_ratio
from elastic_core.trajectory import BUDGET, CELL
from reports.comparison import render

_DIMENSIONS = (("model",), ("strategy",), BUDGET)

_LEGEND = """\
Accuracy is avg@k in percent over the n problems that both have [95 % interval]; the difference is in percentage points,
paired by problem, * where its interval excludes 0. Each interval is of its own cell: of many cells without a difference
one in twenty excludes 0. Tokens are those sampled per trajectory; their ratio is paired by problem."""


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
    order = ["benchmark", "model", "strategy", *BUDGET]
    return table.sort(order, nulls_last=True).drop(BUDGET)


def _vary(first: pl.DataFrame, second: pl.DataFrame, names: Sequence[str]) -> bool:
    """Whether a side has several values, so that it must be said which belong together."""
    return any(rows.select(names).n_unique() > 1 for rows in (first, second))


def _pair(a: pl.DataFrame, b: pl.DataFrame) -> dict[str, Any] | None:
    """One row of the table; None without a problem in common."""
    if set(a["problem"]).isdisjoint(b["problem"]):
        return None
    check_scores(a)
    check_scores(b)
    a, b = common_problems(a, b)
    ours, theirs = (problem_table(rows, ["score", "tokens"]) for rows in (a, b))
    difference = score_difference(theirs, ours)
    # A model that never says a word has no tokens to divide by.
    ratio = paired_ratio(b, a, "tokens") if ours["tokens"].sum() else None
    cells = [{name: rows[name][0] for name in CELL} for rows in (a, b)]
    budgets = [str(Budget(cell["think_budget"], cell["solution_budget"])) for cell in cells]
    return {
        "benchmark": cells[0]["benchmark"],
        "model": _both(*(cell["model"] for cell in cells)),
        "strategy": _both(*(cell["strategy"] for cell in cells)),
        "budget": _both(*budgets),
        **_estimate("accuracy_a", mean_score(ours)),
        **_estimate("accuracy_b", mean_score(theirs)),
        **_estimate("difference", difference),
        **_estimate("tokens_a", mean_tokens(ours, "tokens")),
        **_estimate("tokens_b", mean_tokens(theirs, "tokens")),
        **_estimate("token_ratio", ratio),
        "num_problems": difference.num_problems,
        "num_trajectories": difference.num_trajectories,
        **{name: cells[0][name] for name in BUDGET},
    }


def _estimate(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    """With its bounds; what is unknown or without bound is null."""
    values = (None, None, None) if estimate is None else estimate[:3]
    finite = [value if value is not None and abs(value) < float("inf") else None for value in values]
    return dict(zip((name, f"{name}_low", f"{name}_high"), finite, strict=True))


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} → {b}"


def render_pairs(table: pl.DataFrame, first: str, second: str) -> str:
    """The table as plain text, for a terminal of any width; `first` and `second` say what A and B are."""
    shown = Table(box=box.SIMPLE_HEAD)
    for column in ("benchmark", "model", "strategy", "budget"):
        shown.add_column(column)
    for column in ("A", "B", "B − A", "tokens A", "tokens B", "B / A", "n"):
        shown.add_column(column, justify="right")
    for row in table.iter_rows(named=True):
        mark = "*" if row["difference_low"] > 0 or row["difference_high"] < 0 else " "
        shown.add_row(
            *(row[name] for name in ("benchmark", "model", "strategy", "budget")),
            *(_with_bounds(row, name, ".1f", 100) for name in ("accuracy_a", "accuracy_b")),
            _with_bounds(row, "difference", "+.1f", 100) + mark,
            *(_with_bounds(row, name, ".1f") for name in ("tokens_a", "tokens_b")),
            _with_bounds(row, "token_ratio", ".2f"),
            str(row["num_problems"]),
        )
    return render(f"A is {first}", f"B is {second}", shown, _LEGEND)


def _with_bounds(row: Mapping[str, Any], name: str, form: str, factor: float = 1) -> str:
    value, low, high = (row[f"{name}{bound}"] for bound in ("", "_low", "_high"))
    if value is None:
        return ""
    low, high = ("∞" if bound is None else f"{factor * bound:{form}}" for bound in (low, high))
    return f"{factor * value:{form}} [{low}, {high}]"


def metric_name(quantity: str, row: Mapping[str, Any]) -> str:
    """One metric per curve, whatever characters its names have."""
    return "/".join([quantity, *(_metric_word(row[name]) for name in ("benchmark", "model", "strategy"))])


def _metric_word(text: str) -> str:
    return text.replace(" → ", "-to-").replace(">", "-then-")
