"""What the next tokens buy: accuracy gained from one budget to the next, per hundred tokens more."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl

from elastic_core.statistics.problems import column_of, common_problems
from elastic_core.statistics.resampling import bootstrap

_LADDER = ["model", "benchmark", "strategy", "solution_budget"]
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
    schema = {name: problems.schema[name] for name in (*_LADDER, "think_budget")} | {
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
    for key, ladder in problems.partition_by(_LADDER, as_dict=True).items():
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
    return pl.DataFrame(found, schema=schema, orient="row").sort([*_LADDER, "think_budget"], nulls_last=True)


def _gain(means: np.ndarray) -> np.ndarray:
    """Per hundred tokens; nan where a draw takes no more tokens at the larger budget."""
    scores, tokens = means[:, 0], means[:, 1]
    return np.divide(_PER_TOKENS * scores, tokens, out=np.full_like(scores, np.nan), where=tokens > 0)
