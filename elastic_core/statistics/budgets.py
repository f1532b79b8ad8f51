"""Which budget to set: what the next tokens buy, and the cheapest budget that gives up hardly any accuracy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import score_difference
from elastic_core.statistics.intervals import bootstrap
from elastic_core.statistics.problems import FREE, LADDER, column_of, common_problems
from elastic_core.trajectory import CELL

MARGIN = 0.02
"""How far below unconstrained accuracy a budget may be: two points."""
_PER_TOKENS = 100


def marginal_accuracy(problems: pl.DataFrame) -> pl.DataFrame:
    """Between neighbouring thinking budgets of one strategy at one solution budget: the paired difference of avg@k over
    that of mean sampled tokens, for problems that both have.

    Resampling problems moves both, and gives the interval (`bootstrap`; on its pseudo-problems the scores differ by 0.5
    and the tokens as they do on average). It is infinite where the tokens hardly grow.

    Args:
        problems: `problem_table` of a trajectory table by its cells, with `score` in [0, 1] and `tokens`.

    Returns:
        A row per pair of neighbours of which the larger budget takes more tokens. Columns: model, benchmark, strategy,
        solution_budget, think_budget (the smaller), next_budget (null: unlimited), tokens, next_tokens (their means),
        gain in accuracy per 100 tokens with low and high (null: unbounded), num_problems, num_trajectories. Sorted by
        these columns.
    """
    schema = {name: problems.schema[name] for name in (*LADDER, "think_budget")} | {
        "next_budget": problems.schema["think_budget"],
        "tokens": pl.Float64(),
        "next_tokens": pl.Float64(),
        "gain": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "num_problems": pl.Int64(),
        "num_trajectories": pl.Int64(),
    }
    found = []
    for key, ladder in problems.partition_by(LADDER, as_dict=True).items():
        rungs = ladder.sort("think_budget", "problem", nulls_last=True).partition_by(
            "think_budget", maintain_order=True
        )
        for fewer, more in pairwise(rungs):
            if set(fewer["problem"]).isdisjoint(more["problem"]):
                continue
            budgets = fewer["think_budget"][0], more["think_budget"][0]
            fewer, more = common_problems(fewer, more)
            tokens = column_of(fewer, "tokens"), column_of(more, "tokens")
            scores = column_of(more, "score") - column_of(fewer, "score")
            added = tokens[1] - tokens[0]
            if added.mean() <= 0:
                continue
            extremes = np.array([[-0.5, added.mean()], [0.5, added.mean()]])
            trajectories = int(fewer["num_samples"].sum()) + int(more["num_samples"].sum())
            estimate = bootstrap(np.stack([scores, added], axis=1), _gain, extremes, trajectories)
            low, high = (bound if np.isfinite(bound) else None for bound in (estimate.low, estimate.high))
            means = float(tokens[0].mean()), float(tokens[1].mean())
            found.append((*key, *budgets, *means, estimate.mean, low, high, estimate.num_problems, trajectories))
    return pl.DataFrame(found, schema=schema, orient="row").sort([*LADDER, "think_budget"], nulls_last=True)


def budget_advice(problems: pl.DataFrame) -> pl.DataFrame:
    """Every budget held against unconstrained responses of the same model, on the problems that both have.

    A cell is `within` the margin when its accuracy is no more than `MARGIN` below, as measured; it is `surely_within`
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
    schema = {name: problems.schema[name] for name in CELL} | {
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
    free = problems.filter(pl.col("strategy") == FREE).partition_by("model", "benchmark", as_dict=True)
    found = []
    for key, cell in problems.filter(pl.col("strategy") != FREE).partition_by(CELL, as_dict=True).items():
        reference = free.get(key[:2])
        if reference is None or set(cell["problem"]).isdisjoint(reference["problem"]):
            continue
        ours, theirs = common_problems(cell, reference)
        difference = score_difference(ours, theirs)
        tokens = [float(column_of(side, "tokens").mean()) for side in (ours, theirs)]
        bounds = difference.mean, difference.low, difference.high
        verdicts = difference.mean >= -MARGIN, difference.low >= -MARGIN
        found.append((*key, *tokens, *bounds, *verdicts, difference.num_problems, difference.num_trajectories))
    order = ["model", "benchmark", "tokens", *CELL[2:]]
    return pl.DataFrame(found, schema=schema, orient="row").sort(order, nulls_last=True)


def _gain(means: np.ndarray) -> np.ndarray:
    """Per hundred tokens; nan where a draw takes no more tokens at the larger budget."""
    scores, tokens = means[:, 0], means[:, 1]
    return np.divide(_PER_TOKENS * scores, tokens, out=np.full_like(scores, np.nan), where=tokens > 0)
