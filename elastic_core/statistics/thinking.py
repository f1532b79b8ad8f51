"""Where a model spends its thinking: what each problem needs, and the tokens that went past it or could not help.

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

import polars as pl

from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.intervals import Estimate
from elastic_core.statistics.problems import FREE, LADDER, check_scores, problem_table
from elastic_core.statistics.responses import forced_close, mean_tokens
from elastic_core.trajectory import ThinkFinish

SUFFICIENT = 0.5
"""The mean score from which on a budget suffices for a problem: half of its samples right."""

_TOKENS = ("needed", "overthinking", "futile")
_SHARES = ("starved", "solved_within")


def thinking_spent(rows: pl.DataFrame) -> pl.DataFrame:
    """What the thinking of every cell went into.

    Args:
        rows: of a trajectory table.

    Returns:
        A row per ladder and rung. Columns: LADDER, think_budget (null: unlimited), num_problems, num_trajectories;
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
    schema = {name: rows.schema[name] for name in (*LADDER, "think_budget")} | {
        "num_problems": pl.Int64(),
        "num_trajectories": pl.Int64(),
        **{column: pl.Float64() for name in (*_TOKENS, *_SHARES) for column in (name, f"{name}_low", f"{name}_high")},
    }
    if parts.is_empty():
        return pl.DataFrame(schema=schema)
    cell = [*LADDER, "think_budget"]
    cells = problem_table(parts, [*_TOKENS, *_SHARES], cell).partition_by(cell, as_dict=True, maintain_order=True)
    found = []
    for key, problems in cells.items():
        estimates = [mean_tokens(problems, name) for name in _TOKENS] + [mean_score(problems, name) for name in _SHARES]
        bounds = [bound for estimate in estimates for bound in _bounds(estimate)]
        found.append((*key, estimates[0].num_problems, estimates[0].num_trajectories, *bounds))
    return pl.DataFrame(found, schema=schema, orient="row").sort(cell, nulls_last=True)


def _rungs(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of every ladder, `rung` its budget in tokens or infinite; unconstrained rows once on each ladder."""
    check_scores(rows)
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


def _bounds(estimate: Estimate) -> tuple[float, float | None, float | None]:
    low, high = (bound if math.isfinite(bound) else None for bound in (estimate.low, estimate.high))
    return estimate.mean, low, high
