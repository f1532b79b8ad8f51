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
from elastic_core.strategies import STRATEGIES, Strategy
from elastic_core.strategies.rules import Rules
from elastic_core.trajectory import CELL, KEY

_EVERY_ROW: Rules = {
    "the navigator's tokens are among the thinking's": pl.col("navigator_tokens").is_between(0, "think_tokens"),
    "the score is in [0, 1]": pl.col("score").is_between(0, 1).fill_null(False),
}


def check_rows(rows: pl.DataFrame, table: object) -> None:
    """Check that keys are unique, and that no row breaks a rule. A UserError names the table, the rule and the first
    row that breaks it."""
    if rows.n_unique(KEY) < rows.height:
        repeated = rows.filter(pl.struct(KEY).is_duplicated())
        times = repeated.select(KEY).join(repeated.select(KEY).head(1), on=KEY, how="semi", nulls_equal=True).height
        raise UserError(f"{table}: a trajectory counts once, found {_row(repeated)} {times} times; {_ADVICE}")
    for broken in broken_rules(rows).values():
        raise UserError(f"{table}: {broken}; {_ADVICE}")


def broken_rules(rows: pl.DataFrame, strategies: Mapping[str, Strategy] = STRATEGIES) -> dict[str, str]:
    """Rules that rows break, each with a sentence that names the first such row: the rules of every row and those of
    the strategy that made it (none where it is not installed), as far as the rows have their columns."""
    found = {}
    made = {name: strategies[name].rules for name in rows["strategy"].unique().sort() if name in strategies}
    for name, rules in {None: _EVERY_ROW, **made}.items():
        theirs = rows if name is None else rows.filter(pl.col("strategy") == name)
        for rule, holds in rules.items():
            if {*rows.columns}.issuperset(holds.meta.root_names()):
                broken = theirs.filter(~holds.fill_null(True))
                if not broken.is_empty():
                    counts = f"{broken.height} of {theirs.height} rows"
                    found[rule] = f"{counts} break a rule ({rule}), the first is {_row(broken)}"
    return found


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
