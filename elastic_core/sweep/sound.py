"""Rows of a trajectory table that numbers may come from: those that obey its rules, of samples that every problem has.

An unfinished sweep has the samples that ended first, and short responses end first. So a cell counts the samples that
all problems have, up to the first one that a problem lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import polars as pl

from elastic_core.data.problems import Problem
from elastic_core.errors import UserError
from elastic_core.strategies.single_pass import MAX_CAP
from elastic_core.trajectory import CELL, KEY

_THINK, _SOLUTION, _FORCED = pl.col("think_tokens"), pl.col("solution_tokens"), pl.col("forced_tokens")
_T, _S = pl.col("think_budget"), pl.col("solution_budget")
_STRATEGY = pl.col("strategy")
_GUIDED = _STRATEGY == "reasonflux_zero"
_WAITS = _STRATEGY.str.contains("wait")
_STOPPED = _STRATEGY.str.starts_with("adaptive")
_BY_PHASE = _GUIDED | _STOPPED | _STRATEGY.str.contains("^(separate|budget_forcing)")

RULES = {
    "the thinking keeps t": ~_BY_PHASE | _T.is_null() | (_THINK <= _T),
    "the solution keeps s": ~_BY_PHASE | _S.is_null() | (_SOLUTION <= _S),
    "vanilla keeps t + s": (_STRATEGY != "vanilla") | (_THINK + _SOLUTION <= _T + _S),
    "L1-Exact keeps 2 (t + s)": (_STRATEGY != "l1_exact") | (_THINK + _SOLUTION <= 2 * (_T + _S)),
    "L1-Max keeps its cap": (_STRATEGY != "l1_max") | (_THINK + _SOLUTION <= MAX_CAP),
    "only strategies that close thoughts force tokens": _BY_PHASE | (_FORCED == 0),
    "a closed thought needs no forced token, but to complete a mark at t": (pl.col("think_finish") != "closed")
    | (_FORCED == 0)
    | (_THINK == _T).fill_null(False)
    | _WAITS
    | _GUIDED
    | _STOPPED,
    "a thought is forced exactly at t": (pl.col("think_finish") != "forced")
    | _WAITS
    | _STOPPED
    | _T.is_null()
    | (_THINK == _T),
    "with think-end forced, all of s is there": ~_STRATEGY.is_in(["separate", "separate_native"])
    | (pl.col("think_finish") == "closed")
    | (_FORCED >= 1),
    "the navigator's tokens are a part of the thinking": pl.col("navigator_tokens").is_between(0, _THINK),
    "the score is in [0, 1]": pl.col("score").is_between(0, 1).fill_null(False),
}
"""What the counts of every row obey. A null budget is unlimited."""


def check_rows(rows: pl.DataFrame, table: object) -> None:
    """Check that keys are unique, and every rule of `RULES` whose columns the rows have. A UserError names the table,
    the rule and the first row that breaks it."""
    if rows.n_unique(KEY) < rows.height:
        repeated = rows.filter(pl.struct(KEY).is_duplicated())
        times = repeated.select(KEY).join(repeated.select(KEY).head(1), on=KEY, how="semi", nulls_equal=True).height
        raise UserError(f"{table}: a trajectory counts once, found {_row(repeated)} {times} times; {_ADVICE}")
    known = set(rows.columns)
    for rule, holds in RULES.items():
        if known.issuperset(holds.meta.root_names()):
            broken = rows.filter(~holds.fill_null(True))
            if not broken.is_empty():
                raise UserError(
                    f"{table}: {broken.height} of {rows.height} rows break a rule ({rule}), the first is "
                    f"{_row(broken)}; {_ADVICE}"
                )


_ADVICE = "restore the table, or delete it and run the sweep again"


def _row(rows: pl.DataFrame) -> str:
    first = rows.select(KEY).row(0, named=True)
    return ", ".join(f"{name} {'unlimited' if value is None else value}" for name, value in first.items())


class Whole(NamedTuple):
    """Rows of whole samples; and the key of each cell without one, with the column num_missing: how many problems the
    first of its samples lacks."""

    rows: pl.DataFrame
    left_out: pl.DataFrame


def whole_samples(rows: pl.DataFrame, num_problems: Mapping[str, int] | None = None) -> Whole:
    """The samples of each cell that all problems have, below the first that one of them lacks. Each key appears once in
    the rows. A benchmark that `num_problems` does not name has the problems that the model's rows have."""
    known = pl.col("benchmark").cast(pl.String).replace_strict(num_problems or {}, default=None, return_dtype=pl.Int64)
    expected = pl.coalesce(known, pl.col("problem").n_unique().over("model", "benchmark").cast(pl.Int64))
    counted = rows.with_columns(_missing=expected - pl.len().over(*CELL, "sample").cast(pl.Int64))
    sample, lacks = pl.col("sample"), pl.col("_missing") > 0
    whole = counted.filter((sample < sample.filter(lacks).min().over(CELL)).fill_null(True)).drop("_missing")
    first = counted.group_by(CELL).agg(num_missing=pl.col("_missing").get(sample.arg_min()))
    return Whole(whole, first.filter(pl.col("num_missing") > 0).sort(CELL, nulls_last=True))


def repeated_texts(problems: Collection[Problem]) -> dict[tuple[str, str], str]:
    """Problems, by benchmark and id, with the text of an earlier one of their benchmark, and the earlier one's id."""
    first: dict[tuple[str, str], str] = {}
    found = {}
    for problem in problems:
        asks = problem.benchmark, " ".join(problem.question.split())
        if first.setdefault(asks, problem.id) != problem.id:
            found[problem.benchmark, problem.id] = first[asks]
    return found
