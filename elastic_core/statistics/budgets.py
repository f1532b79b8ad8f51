"""Which budget to set: what the next tokens buy, the cheapest budget that gives up hardly any accuracy, and where the
thinking goes: what each problem needs, and the tokens that went past it or could not help.

A *ladder* is one strategy of one model on one benchmark at one solution budget; its *rungs* are the thinking budgets.
Unconstrained responses of the same model are its last rung, unlimited, unless the strategy has such a cell of its own.
Only problems that were measured on every rung count: what a problem needs cannot be read off a part of the ladder.

The score of a problem on a rung is the mean over its samples, and a rung *suffices* when that is at least `SUFFICIENT`.
For a problem p, whose samples on rung t thought a tokens:

- b*(p), the smallest sufficient budget: the smallest t that suffices, infinite where only the unlimited one does. A
  problem that no rung suffices for is never solved, and has none. Larger rungs need not suffice: b* is the first
  success, so with few samples and many rungs a lucky one makes it too small.
- overthinking on rung t: max(0, a - b*), for a problem that is solved on some rung.
- futile tokens on rung t: a, for a problem that is never solved.
- what was needed: min(a, b*) of a solved problem. The three add up to the thinking tokens.
- starved on rung t: the thought was cut, by whoever, and t < b* of a solved problem.

The names are those of marin-community/marin issue 8357 (overthinking tax, futility waste, starvation loss), which sums
over one answer per problem; here they are means over the samples of a problem, then over problems, with the interval
over problems. b* is read off the same samples, and is a property of a problem together with its samples.
Vanilla truncation at (t, s) may think t + s tokens: there the overthinking of a budget that just suffices is up to s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import mean_score, score_difference
from elastic_core.statistics.estimates import (
    FREE,
    LADDER,
    Estimate,
    bootstrap,
    check_scores,
    column_of,
    common_problems,
    estimates_table,
    forced_close,
    mean_tokens,
    problem_table,
)
from elastic_core.trajectory import CELL, ThinkFinish

MARGIN = 0.02
"""How far below unconstrained accuracy a budget may be: two points."""
SUFFICIENT = 0.5
"""The mean score from which on a budget suffices for a problem: half of its samples right."""

_PER_TOKENS = 100
_RUNG = (*LADDER, "think_budget")
_SPENT: dict[str, Callable[[pl.DataFrame, str], Estimate]] = {
    "needed": mean_tokens,
    "overthinking": mean_tokens,
    "futile": mean_tokens,
    "starved": mean_score,
    "solved_within": mean_score,
}
"""What is told of the thinking on a rung, and how its mean and interval are taken."""


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
    found = []
    for key, ladder in problems.partition_by(LADDER, as_dict=True).items():
        rungs = ladder.sort("think_budget", "problem", nulls_last=True).partition_by(
            "think_budget", maintain_order=True
        )
        for fewer, more in pairwise(rungs):
            budgets = fewer["think_budget"][0], more["think_budget"][0]
            fewer, more = common_problems(fewer, more)
            tokens = column_of(fewer, "tokens"), column_of(more, "tokens")
            added = tokens[1] - tokens[0]
            if fewer.is_empty() or added.mean() <= 0:
                continue
            scores = column_of(more, "score") - column_of(fewer, "score")
            extremes = np.array([[-0.5, added.mean()], [0.5, added.mean()]])
            trajectories = int(fewer["num_samples"].sum()) + int(more["num_samples"].sum())
            gain = bootstrap(np.stack([scores, added], axis=1), _gain, extremes, trajectories)
            means = float(tokens[0].mean()), float(tokens[1].mean())
            found.append((*key, *budgets, *means, *gain.columns("gain").values(), gain.num_problems, trajectories))
    keys = {name: problems.schema[name] for name in _RUNG} | {"next_budget": problems.schema["think_budget"]}
    return estimates_table(found, keys, ["tokens", "next_tokens", "gain", "low", "high"])


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
        [-1, 1]), num_problems, num_trajectories, within, surely_within. Cheapest first within a model and benchmark.
    """
    free = problems.filter(strategy=FREE).partition_by("model", "benchmark", as_dict=True)
    found = []
    for key, cell in problems.filter(pl.col("strategy") != FREE).partition_by(CELL, as_dict=True).items():
        ours, theirs = common_problems(cell, free.get(key[:2], cell.clear()))
        if ours.is_empty():
            continue
        tokens = [float(column_of(side, "tokens").mean()) for side in (ours, theirs)]
        found.append((*key, *tokens, *score_difference(ours, theirs)))
    keys = {name: problems.schema[name] for name in CELL}
    advice = estimates_table(found, keys, ["tokens", "free_tokens", "difference", "low", "high"])
    verdicts = {"within": pl.col("difference") >= -MARGIN, "surely_within": pl.col("low") >= -MARGIN}
    return advice.with_columns(**verdicts).sort("model", "benchmark", "tokens", maintain_order=True)


def cheapest_budgets(advice: pl.DataFrame) -> pl.DataFrame:
    """The budget to set for each model and benchmark of `budget_advice`: of those within the margin, the cheapest.

    Returns:
        Two rows each, with `meaning`: the cheapest as measured, and the cheapest with its whole interval. Other columns
        are those of the advice, null where no budget is within. Sorted by benchmark and model.
    """
    place = ["benchmark", "model"]
    chosen = []
    for column, meaning in (("within", "as measured"), ("surely_within", "with its whole interval")):
        cheapest = advice.filter(column).group_by(place, maintain_order=True).first()
        found = advice.select(place).unique().join(cheapest, on=place, how="left")
        chosen.append(found.with_columns(meaning=pl.lit(meaning)))
    return pl.concat(chosen).sort(place, maintain_order=True)


def _gain(means: np.ndarray) -> np.ndarray:
    """Per hundred tokens; nan where a draw takes no more tokens at the larger budget."""
    scores, tokens = means[:, 0], means[:, 1]
    return np.divide(_PER_TOKENS * scores, tokens, out=np.full_like(scores, np.nan), where=tokens > 0)


def thinking_spent(rows: pl.DataFrame) -> pl.DataFrame:
    """What the thinking of every cell went into.

    Args:
        rows: of a trajectory table.

    Returns:
        A row per ladder and rung. Columns: LADDER, think_budget (null: unlimited), responses (the strategy whose
        responses the rung holds: the ladder's, or "unconstrained"), num_problems, num_trajectories;
        needed, overthinking, futile in tokens per trajectory; starved in [0, 1], the share of trajectories;
        solved_within in [0, 1], the share of problems whose b* is at most this rung; and the 95 % interval of each, as
        <name>_low and <name>_high (null where there is one problem). Sorted by LADDER and budget.

    Raises:
        ValueError: on a score that is missing or outside [0, 1].
    """
    rungs = _rungs(rows)
    best = pl.col("sufficient_budget")
    needed = pl.min_horizontal("think_tokens", best)
    cut = forced_close() | (pl.col("think_finish") == ThinkFinish.LENGTH)
    parts = rungs.join(
        _sufficient(rungs), on=[*LADDER, "problem"], nulls_equal=True, maintain_order="left"
    ).with_columns(
        needed=pl.when(best.is_null()).then(0.0).otherwise(needed),
        overthinking=pl.when(best.is_null()).then(0.0).otherwise(pl.col("think_tokens") - needed),
        futile=pl.when(best.is_null()).then(pl.col("think_tokens")).otherwise(0.0),
        starved=(cut & (pl.col("rung") < best)).fill_null(False),
        solved_within=(best <= pl.col("rung")).fill_null(False),
    )
    found = []
    cells = problem_table(parts, list(_SPENT), _RUNG).partition_by(_RUNG, as_dict=True) if parts.height else {}
    for key, problems in cells.items():
        estimates = {name: mean(problems, name) for name, mean in _SPENT.items()}
        values = [value for name, estimate in estimates.items() for value in estimate.columns(name).values()]
        found.append((*key, *values, *estimates["needed"][3:]))
    columns = [f"{name}{bound}" for name in _SPENT for bound in ("", "_low", "_high")]
    table = estimates_table(found, {name: rows.schema[name] for name in _RUNG}, columns)
    responses = rungs.group_by(_RUNG).agg(pl.col("responses").first())
    table = table.join(responses, on=_RUNG, how="left", nulls_equal=True, maintain_order="left")
    return table.select(*_RUNG, "responses", "num_problems", "num_trajectories", *columns)


def _rungs(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of every ladder, `rung` its budget in tokens or infinite and `responses` their own strategy;
    unconstrained rows once on each ladder."""
    check_scores(rows)
    rows = rows.with_columns(responses="strategy")
    limited = rows.filter(pl.col("strategy") != FREE)
    ladders = limited.group_by(LADDER).agg(free=pl.col("think_budget").is_null().any())
    free = rows.filter(pl.col("strategy") == FREE).drop("strategy", "solution_budget")
    added = free.join(ladders.filter(~pl.col("free")).drop("free"), on=["model", "benchmark"])
    rungs = pl.concat([limited, added.select(limited.columns)]).with_columns(
        rung=pl.col("think_budget").cast(pl.Float64).fill_null(math.inf)
    )
    complete = pl.col("rung").n_unique().over([*LADDER, "problem"]) == pl.col("rung").n_unique().over(LADDER)
    return rungs.filter(complete)


def _sufficient(rungs: pl.DataFrame) -> pl.DataFrame:
    """b* of every problem on every ladder, `sufficient_budget`: infinite where only unlimited thinking suffices, null
    where nothing does."""
    keys = [*LADDER, "problem"]
    scores = rungs.group_by([*keys, "rung"]).agg(pl.col("score").mean())
    enough = pl.col("rung").filter(pl.col("score") >= SUFFICIENT)
    return scores.group_by(keys).agg(sufficient_budget=enough.min()).sort(keys, nulls_last=True)
