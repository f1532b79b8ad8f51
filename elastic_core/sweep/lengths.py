"""Longest first: a sample that takes long and begins last keeps one engine busy and all others waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import polars as pl

from elastic_core.statistics.estimates import sampled_tokens
from elastic_core.sweep.plan import SweepPlan
from elastic_core.sweep.table import Table

Lengths = Mapping[tuple[str, str], float]
"""Tokens that a sample is expected to take, by benchmark and problem."""


def known_lengths(table: Table, model: str) -> dict[tuple[str, str], float]:
    """What a table tells of its problems: the longest row of a sample, on average over samples, of this model where it
    has any of the problem, else of the others."""
    sample = ["benchmark", "problem", "model", "sample"]
    longest = table.scan().group_by(sample).agg(tokens=sampled_tokens().max())
    own = pl.col("tokens").filter(pl.col("model") == model).mean()
    means = longest.group_by(sample[:2]).agg(own.fill_null(pl.col("tokens").mean())).collect()
    return {(benchmark, problem): tokens for benchmark, problem, tokens in means.iter_rows()}


def longest_first(plan: SweepPlan, lengths: Lengths) -> SweepPlan:
    """The plan in another order: its first rounds of samples stay rounds, in each of which long problems come first; in
    its last half the longest samples come first, whatever their round. So a half-done table is a whole sweep of fewer
    samples, and what is begun last is short.

    A problem of which nothing is known is as long as its benchmark's others are on average, and first where nothing is
    known of any. Cells that are units of their own have an order that knows more, by budgets.
    """
    if plan.sharing == "independent" or not plan.work:
        return plan
    of_benchmark: dict[str, list[float]] = {}
    for (benchmark, _), tokens in lengths.items():
        of_benchmark.setdefault(benchmark, []).append(tokens)
    means = {benchmark: sum(found) / len(found) for benchmark, found in of_benchmark.items()}
    rounds = sorted({unit.number for unit in plan.work})
    last_round = rounds[len(rounds) // 2]

    def place(index: int) -> tuple[int, float]:
        unit = plan.work[index]
        benchmark, problem = unit.problem.benchmark, unit.problem.id
        tokens = lengths.get((benchmark, problem), means.get(benchmark, inf))
        return min(unit.number, last_round), -tokens

    return replace(plan, work=tuple(plan.work[i] for i in sorted(range(len(plan.work)), key=place)))
