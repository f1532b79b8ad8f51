"""Which budget to set: the cheapest one that gives up hardly any accuracy."""

from __future__ import annotations

import polars as pl

from elastic_core.statistics.accuracy import score_difference
from elastic_core.statistics.problems import column_of, common_problems

MARGIN = 0.02
"""How far below unconstrained accuracy a budget may be: two points."""

_CELL = ["model", "benchmark", "strategy", "think_budget", "solution_budget"]
_FREE = "unconstrained"


def budget_advice(problems: pl.DataFrame, margin: float = MARGIN) -> pl.DataFrame:
    """Every budget held against unconstrained responses of the same model, on the problems that both have.

    A cell is `within` the margin when its accuracy is no more than `margin` below, as measured; it is `surely_within`
    when the lower end of the paired difference's 95 % interval (`score_difference`) is. The cheapest of those within
    has been picked among many, and its own luck helped: `surely_within` is the choice that a new sample will rather
    bear out. No correction is made for the number of cells looked at.

    Args:
        problems: `problem_table` of a trajectory table by its cells, with `score` in [0, 1] and `tokens`, the sampled
            tokens of both phases.

    Returns:
        A row per limited cell of a model and benchmark that has unconstrained responses. Columns: model, benchmark,
        strategy, think_budget, solution_budget, tokens, free_tokens (means per trajectory), difference, low, high (in
        [-1, 1]), within, surely_within, num_problems, num_trajectories. Cheapest first within a model and benchmark.
    """
    schema = {name: problems.schema[name] for name in _CELL} | {
        "tokens": pl.Float64(),
        "free_tokens": pl.Float64(),
        "difference": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "within": pl.Boolean(),
        "surely_within": pl.Boolean(),
        "num_problems": pl.Int64(),
        "num_trajectories": pl.Int64(),
    }
    free = problems.filter(pl.col("strategy") == _FREE).partition_by("model", "benchmark", as_dict=True)
    found = []
    for key, cell in problems.filter(pl.col("strategy") != _FREE).partition_by(_CELL, as_dict=True).items():
        reference = free.get(key[:2])
        if reference is None or set(cell["problem"]).isdisjoint(reference["problem"]):
            continue
        ours, theirs = common_problems(cell, reference)
        difference = score_difference(ours, theirs)
        tokens = [float(column_of(side, "tokens").mean()) for side in (ours, theirs)]
        bounds = difference.mean, difference.low, difference.high
        verdicts = difference.mean >= -margin, difference.low >= -margin
        found.append((*key, *tokens, *bounds, *verdicts, difference.num_problems, difference.num_trajectories))
    order = ["model", "benchmark", "tokens", *_CELL[2:]]
    return pl.DataFrame(found, schema=schema, orient="row").sort(order, nulls_last=True)
