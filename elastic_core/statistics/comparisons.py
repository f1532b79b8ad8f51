"""Paired differences for a whole table: models and strategies against each other at equal budget."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import polars as pl

from elastic_core.statistics.accuracy import score_difference
from elastic_core.statistics.curves import BUDGET
from elastic_core.statistics.problems import check_scores, common_problems, problem_table


def paired_differences(rows: pl.DataFrame, between: Literal["model", "strategy"], baseline: str) -> pl.DataFrame:
    """Every pair of models under one strategy, or of strategies of one model, at every benchmark and equal budget.

    The difference is avg@k of `second` minus avg@k of `first`, over the problems both have (`score_difference`).

    Args:
        rows: of a trajectory table.
        between: what the two sides of a difference differ in; they agree in the other one.
        baseline: the name that is first in its pairs; other names are in alphabetical order. It need not occur.

    Returns:
        A row per pair with a problem in common, columns: benchmark, strategy (or model, when between strategies),
        think_budget, solution_budget, first, second, difference, low, high (in [-1, 1]), num_problems (common ones),
        num_trajectories (of both sides). Sorted by these columns, unlimited budgets last.

    Raises:
        ValueError: on no rows, or a score that is missing or outside [0, 1].
    """
    other = "strategy" if between == "model" else "model"
    place = ["benchmark", other, *BUDGET]
    problems = problem_table(rows, ["score"], by=[*place, between])
    check_scores(rows)
    schema = {name: problems.schema[name] for name in place} | {
        "first": pl.String(),
        "second": pl.String(),
        "difference": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "num_problems": pl.Int64(),
        "num_trajectories": pl.Int64(),
    }
    found = []
    for key, cells in problems.partition_by(place, as_dict=True).items():
        sides = {name: side for (name,), side in cells.partition_by(between, as_dict=True).items()}
        for first, second in combinations(sorted(sides, key=lambda name: (name != baseline, name)), 2):
            if set(sides[first]["problem"]).isdisjoint(sides[second]["problem"]):
                continue
            ours, theirs = common_problems(sides[second], sides[first])
            found.append((*key, first, second, *score_difference(ours, theirs)))
    return pl.DataFrame(found, schema=schema, orient="row").sort([*place, "first", "second"], nulls_last=True)
