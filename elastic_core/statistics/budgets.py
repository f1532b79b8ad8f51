"""Accuracy over thinking budgets: the gain of the next tokens, falls, and accuracy at any budget.

A *ladder* is one strategy of one model on one benchmark at one solution budget; its *rungs* are the thinking budgets.
`problems` is always the `problem_table` of a trajectory table by its cells, with `score` in [0, 1]. Cells that lack
problems that others have are left out where cells are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, product
from typing import Literal

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import mean_score, score_difference
from elastic_core.statistics.estimates import (
    CLUSTER,
    LADDER,
    by_seed,
    common_problems,
    estimates_table,
    paired_scores,
    seed_columns,
    units,
)
from elastic_core.statistics.intervals import Estimate, mean_interval, paired_interval, simultaneous

Distribution = Literal["log-uniform", "uniform"]
"""Of the thinking budgets that a model may be given: uniform in their logarithm."""

_PER_TOKENS = 100
_RUNG = (*LADDER, "think_budget")


def marginal_accuracy(problems: pl.DataFrame) -> pl.DataFrame:
    """The gain in accuracy per 100 tokens between neighbouring thinking budgets of a ladder: the paired difference of
    avg@k over that of mean sampled tokens, for problems that both have. Its interval is that of the ratio of two
    intervals (MOVER: Donner and Zou 2012; Fieller's where distances are equal), of the scores by `paired_interval`, of
    the tokens by Student's t; infinite where tokens are not shown to grow.

    A row per pair of neighbours of which the larger budget takes more `tokens`. Columns: LADDER, think_budget (the
    smaller), next_budget (null: unlimited), tokens, next_tokens (their means), gain with low and high (null:
    unbounded), num_problems, num_trajectories. Sorted by these columns.
    """
    found = []
    for key, ladder in problems.partition_by(LADDER, as_dict=True).items():
        rungs = ladder.sort("think_budget", "problem", nulls_last=True).partition_by(
            "think_budget", maintain_order=True
        )
        for fewer, more in pairwise(rungs):
            budgets = fewer["think_budget"][0], more["think_budget"][0]
            fewer, more = common_problems(fewer, more)
            tokens = [units(side, "tokens").mean(axis=0) for side in (fewer, more)]
            added = tokens[1] - tokens[0]
            if fewer.is_empty() or added.mean() <= 0:
                continue
            values, trajectories = paired_scores(more, fewer)
            gain = _gain(values.mean(axis=0), added)._replace(num_problems=fewer.height, num_trajectories=trajectories)
            means = float(tokens[0].mean()), float(tokens[1].mean())
            found.append((*key, *budgets, *means, *gain.columns("gain").values(), *gain[3:5]))
    return estimates_table(
        found, _keys(problems, *_RUNG, "next_budget"), ["tokens", "next_tokens", "gain", "low", "high"]
    )


def falls(problems: pl.DataFrame) -> pl.DataFrame:
    """Ladders on which a larger thinking budget is shown to be less accurate than a smaller one: the two that are
    furthest apart, the deepest fall first. The intervals of all pairs of rungs of all ladders hold together
    (`simultaneous`).

    Columns: LADDER, think_budget, next_budget (the larger), difference, low, high (in [-1, 0]), num_problems (measured
    on all rungs), num_trajectories.
    """
    found = []
    ladders = problems.filter(pl.col("think_budget").is_not_null()).partition_by(LADDER, as_dict=True)
    for key, ladder in ladders.items():
        rungs = [(rung["think_budget"][0], rung) for rung in comparable(ladder, "think_budget")]
        pairs = list(combinations(rungs, 2))
        together = differences_together([(more, fewer) for (_, fewer), (_, more) in pairs], len(ladders))
        hurt = [each for each in zip(together, pairs, strict=True) if each[0].high < 0]
        if hurt:
            worst, ((fewer, _), (more, _)) = min(hurt, key=lambda each: each[0].mean)
            found.append((*key, fewer, more, worst.mean, worst.low, worst.high, *worst[3:5]))
    table = estimates_table(found, _keys(problems, *_RUNG, "next_budget"), ["difference", "low", "high"])
    return table.sort("difference", maintain_order=True)


def anytime_accuracy(problems: pl.DataFrame, distribution: Distribution = "log-uniform") -> pl.DataFrame:
    """Accuracy of a model that is given a thinking budget at random: the area under accuracy over the budgets of a
    ladder, between its smallest and its largest, by the trapezoid rule. Budgets of 0 and unlimited ones have no
    logarithm. Of one problem it is a weighted mean of its scores, so its interval is that of avg@k.

    A row per ladder of two such rungs or more. Columns: LADDER, smallest, largest (budgets in tokens), num_rungs,
    anytime, anytime_low, anytime_high in [0, 1], num_problems (measured on all rungs), num_trajectories; sorted.
    """
    found = []
    for key, ladder in problems.filter(pl.col("think_budget") >= 1).partition_by(LADDER, as_dict=True).items():
        rungs = comparable(ladder, "think_budget")
        if len(rungs) < 2:
            continue
        budgets = [rung["think_budget"][0] for rung in rungs]
        anytime = mean_score(_weighted(rungs, trapezoid_weights(budgets, distribution)))
        found.append((*key, budgets[0], budgets[-1], len(budgets), *anytime.row))
    keys = _keys(problems, *LADDER, "smallest", "largest") | {"num_rungs": pl.Int64()}
    return estimates_table(found, keys, ["anytime", "anytime_low", "anytime_high"])


def anytime_differences(
    problems: pl.DataFrame, pairs: Sequence[tuple[str, str]], distribution: Distribution = "log-uniform"
) -> pl.DataFrame:
    """`anytime_accuracy` of the second model of each pair minus that of the first, over the thinking budgets and
    problems that both have under a strategy (`score_difference`): a row per pair and ladder with ≥ 2 common rungs.

    Columns: LADDER without its model, first, second, smallest, largest, num_rungs, difference, low, high in [-1, 1],
    num_problems, num_trajectories. Sorted by the first five.
    """
    place = [name for name in LADDER if name != "model"]
    ladders = problems.filter(pl.col("think_budget") >= 1).partition_by(place, as_dict=True)
    found = []
    for (key, cells), (first, second) in product(ladders.items(), pairs):
        rungs = comparable(cells.filter(pl.col("model").is_in([first, second])), "model", "think_budget")
        theirs, ours = (
            {rung["think_budget"][0]: rung for rung in rungs if rung["model"][0] == name} for name in (first, second)
        )
        budgets = sorted(theirs.keys() & ours.keys())
        if len(budgets) < 2:
            continue
        weights = trapezoid_weights(budgets, distribution)
        sides = (_weighted([side[t] for t in budgets], weights) for side in (ours, theirs))
        found.append((*key, first, second, budgets[0], budgets[-1], len(budgets), *score_difference(*sides).row))
    keys = _keys(problems, *place) | {"first": pl.String(), "second": pl.String()}
    keys |= _keys(problems, "smallest", "largest") | {"num_rungs": pl.Int64()}
    return estimates_table(found, keys, ["difference", "low", "high"])


def _keys(problems: pl.DataFrame, *names: str) -> dict[str, pl.DataType]:
    """The types of these columns; those that `problems` lacks are thinking budgets."""
    return {name: problems.schema.get(name, problems.schema["think_budget"]) for name in names}


def trapezoid_weights(budgets: Sequence[int], distribution: Distribution) -> np.ndarray:
    """What each of two budgets or more, ascending, weighs in `anytime_accuracy`; they sum to 1."""
    x = np.log(budgets) if distribution == "log-uniform" else np.asarray(budgets, float)
    widths = np.diff(x)
    return (np.append(widths, 0) + np.append(0, widths)) / (2 * (x[-1] - x[0]))


def comparable(cells: pl.DataFrame, *by: str) -> list[pl.DataFrame]:
    """The cells that have as many problems as any, each on the problems that all have, which may be none; sorted."""
    size = pl.len().over(by)
    fullest = cells.filter(size == size.max())
    shared = fullest.filter(pl.len().over("problem") == fullest.n_unique(by))
    if shared.is_empty():
        return []
    return shared.sort(*by, "problem", nulls_last=True).partition_by(*by, maintain_order=True)


def differences_together(pairs: Sequence[tuple[pl.DataFrame, pl.DataFrame]], families: int = 1) -> list[Estimate]:
    """The first minus the second of each, all on the same problems (`simultaneous`); nothing where there is none."""
    if not pairs:
        return []
    values, trajectories = zip(*(paired_scores(a, b) for a, b in pairs), strict=True)
    num_problems = pairs[0][0].height
    return [one._replace(num_problems=num_problems) for one in simultaneous(values, trajectories, families)]


def _weighted(cells: Sequence[pl.DataFrame], weights: np.ndarray) -> pl.DataFrame:
    """A problem table of the weighted means of the scores of cells on the same problems."""
    scores = np.tensordot(weights, [seed_columns(cell, "score") for cell in cells], axes=1).clip(0, 1)
    columns = {
        by_seed("score"): pl.Series(scores.T.tolist()),
        "score": pl.Series(scores.mean(axis=0)),
        "num_samples": pl.Series(np.sum([cell["num_samples"].to_numpy() for cell in cells], axis=0)),
    }
    kept = [name for name in ("problem", CLUSTER) if name in cells[0].columns]
    return cells[0].select(kept).with_columns(**columns)


def _gain(scores: np.ndarray, tokens: np.ndarray) -> Estimate:
    """Per hundred tokens, from differences by unit; the mean of tokens is above 0."""
    gained, added = float(scores.mean()), float(tokens.mean())
    square = added**2 - (mean_interval(tokens)[1] - added) ** 2
    if not square > 0:
        return Estimate(_PER_TOKENS * gained / added, -np.inf, np.inf, 0, 0)

    def bound(own: float) -> float:
        reach = (added**2 - square) * gained**2 + square * (own - gained) ** 2
        return _PER_TOKENS * (gained * added + np.sign(own - gained) * float(np.sqrt(reach))) / square

    low, high = (bound(own) for own in paired_interval(scores))
    return Estimate(_PER_TOKENS * gained / added, low, high, 0, 0)
