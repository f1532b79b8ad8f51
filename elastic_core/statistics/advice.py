"""Which budget to set: the cheapest that is shown to lose at most a margin, and that nothing of the table beats.

`problems` is the `problem_table` of a trajectory table by its cells, with `score` in [0, 1] and the columns `WORK`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.budgets import comparable, differences_together
from elastic_core.statistics.cost import TOKENS, CostModel
from elastic_core.statistics.estimates import FREE, paired_columns, ratio_of_means
from elastic_core.statistics.intervals import LEVEL, paired_mean, t_upper
from elastic_core.statistics.seeds import seed_half_widths, with_seeds
from elastic_core.statistics.simultaneous import NonInferiority, problems_needed
from elastic_core.trajectory import CELL

MARGIN = 0.02
"""How far below unconstrained accuracy a budget may be, unless told otherwise: two points."""
SERVED = "separate"
"""The strategy that a server keeps budgets by."""


def budget_advice(problems: pl.DataFrame, model: CostModel = TOKENS, margin: float = MARGIN) -> pl.DataFrame:
    """Every budget held against unconstrained responses of the same model by a test of non-inferiority.

    The budgets of a strategy are tested in a fixed sequence, from the largest down, each at the whole level; where one
    is not shown to be within the margin, the smaller ones are not either (Maurer, Hothorn and Lehmacher 1995; Wiens
    2003, "A fixed sequence Bonferroni procedure"). So that any budget of a strategy is wrongly called within the margin
    has a chance of at most 5 %, without a price for their number.

    Args:
        model: of costs.
        margin: in [0, 1], of accuracy.

    Returns:
        A row per limited cell of a model and benchmark that has unconstrained responses. Columns: model, benchmark,
        strategy, think_budget, solution_budget; cost and free_cost, means; saved with saved_low and saved_high, the
        share of free_cost, negative where the budget costs more; difference of accuracy with low and high, its
        one-sided 95 % bounds, in [-1, 1]; margin; verdict (`NonInferiority` at the margin) and problems_needed to
        decide it (null: no number would); num_problems, num_trajectories. Cheapest first within a model and benchmark.
    """
    found = []
    for cells in problems.partition_by("model", "benchmark"):
        sides = comparable(cells, *CELL)
        free = [side for side in sides if side["strategy"][0] == FREE]
        limited = [side for side in sides if side["strategy"][0] != FREE]
        for side in limited if free else ():
            costs = model.of_problems(side), model.of_problems(free[0])
            ratio, low, high = ratio_of_means(*costs)
            bound = _bounds(side, free[0])
            needed = problems_needed(bound.mean + margin, bound.mean - bound.low, bound.seeds, side.height)
            found.append(
                (
                    *(side[name][0] for name in CELL),
                    *(float(costs[0].mean()), float(costs[1].mean()), 1 - ratio, 1 - high, 1 - low),
                    *(bound.mean, bound.low, bound.high),
                    *(margin, None, needed if np.isfinite(needed) else None),
                    *(side.height, int(side["num_samples"].sum()) + int(free[0]["num_samples"].sum())),
                )
            )
    schema = {name: problems.schema[name] for name in CELL} | _ADVICE
    advice = pl.DataFrame(found, schema, orient="row").sort("model", "benchmark", "cost", *CELL, nulls_last=True)
    return judged(advice, margin)


def judged(advice: pl.DataFrame, margin: float) -> pl.DataFrame:
    """Rows of `budget_advice` with the verdicts of another margin."""
    total = pl.sum_horizontal(_limit("think_budget"), _limit("solution_budget")).alias("total")
    largest_first = pl.struct(total, _limit("think_budget"))
    sequence = ["model", "benchmark", "strategy"]
    order = largest_first.rank("ordinal", descending=True)
    least = pl.col("low").cum_min().over(sequence, order_by=order)
    verdict = (
        pl.when(least >= -margin)
        .then(pl.lit(str(NonInferiority.HOLDS)))
        .when(pl.col("high") < -margin)
        .then(pl.lit(str(NonInferiority.FAILS)))
        .otherwise(pl.lit(str(NonInferiority.UNDECIDED)))
    )
    return advice.with_columns(margin=pl.lit(margin), verdict=verdict)


def _limit(name: str) -> pl.Expr:
    return pl.col(name).cast(pl.Int64).fill_null(2**40)


class _Bound(NamedTuple):
    """Attributes:
    low, high: one-sided 95 % bounds, each by itself.
    """

    mean: float
    low: float
    high: float
    seeds: float


def _bounds(side: pl.DataFrame, free: pl.DataFrame) -> _Bound:
    values = np.subtract(*paired_columns(side, free, "score"))
    differences = values.mean(axis=0)
    if len(differences) < 2:
        return _Bound(float(differences.mean()), -1.0, 1.0, 0.0)
    found = paired_mean(differences)
    (seeds,) = seed_half_widths([values])
    one_sided = found.interval(t_upper(len(differences) - 1, LEVEL))
    return _Bound(found.mean, *with_seeds(found.mean, one_sided, seeds, (-1.0, 1.0)), seeds)


_ADVICE: dict[str, Any] = {
    **dict.fromkeys(("cost", "free_cost", "saved", "saved_low", "saved_high", "difference", "low", "high"), pl.Float64),
    "margin": pl.Float64,
    "verdict": pl.String,
    "problems_needed": pl.Float64,
    **dict.fromkeys(("num_problems", "num_trajectories"), pl.Int64),
}


class Reason(StrEnum):
    """Why no budget of a model is advised."""

    UNMEASURED = "responses without a limit, or under limits, are not measured on all problems"
    NOT_SHOWN = "none is shown to be within the margin of unlimited thinking"
    NO_SAVING = "those within the margin of unlimited thinking are not shown to save anything"
    GUESSING = "the model is not shown to be better than guessing"
    BEATEN = "another budget or model of the table is shown to be better by more than the margin"


Choices = Mapping[tuple[str, str], dict[str, Any] | Reason]
"""By model and benchmark, of `choose_budget`."""


def choose_budget(
    advice: pl.DataFrame, problems: pl.DataFrame, model: str, benchmark: str, guess: float = 0.0
) -> dict[str, Any] | Reason:
    """The budget to serve a model with for tasks like a benchmark's: the cheapest one of `separate` that is shown to be
    within the margin of unconstrained responses and to save something, that is better than guessing, and that nothing
    beats. What beats it is any model of the table, under `separate` or without a limit, that is shown to be more
    accurate (all together, `simultaneous`), as measured by more than the margin.

    Args:
        advice: of `budget_advice`.
        guess: accuracy of guessing, in [0, 1].

    Returns:
        A row of `advice`, or the reason why there is none: that of the candidates which came furthest.
    """
    ours = advice.filter(model=model, benchmark=benchmark, strategy=SERVED).sort("cost")
    if ours.is_empty():
        return Reason.UNMEASURED
    holds = ours.filter(verdict=NonInferiority.HOLDS)
    if holds.is_empty():
        return Reason.NOT_SHOWN
    saving = holds.filter(pl.col("saved_low") > 0)
    if saving.is_empty():
        return Reason.NO_SAVING
    margin = float(saving["margin"][0])
    servable = pl.col("strategy").is_in([SERVED, FREE]), ~pl.col("model").str.contains(">")
    cells = comparable(problems.filter(*servable, benchmark=benchmark), *CELL)
    reason = Reason.GUESSING
    for row in saving.iter_rows(named=True):
        mine = [cell for cell in cells if all(cell[name][0] == row[name] for name in CELL)]
        if not mine or mean_score(mine[0]).low <= guess + min(margin, MARGIN):
            continue
        together = differences_together([(other, mine[0]) for other in cells if other is not mine[0]])
        if not any(each.low > 0 and each.mean > margin for each in together):
            return row
        reason = Reason.BEATEN
    return reason


def choose_budgets(advice: pl.DataFrame, problems: pl.DataFrame, guesses: Mapping[str, float] | None = None) -> Choices:
    """`choose_budget` of every model and benchmark of the table.

    Args:
        guesses: accuracy of guessing, in [0, 1], by benchmark; 0 without.
    """
    places = problems.select("model", "benchmark").unique().sort("model", "benchmark")
    return {
        (model, benchmark): choose_budget(advice, problems, model, benchmark, (guesses or {}).get(benchmark, 0.0))
        for model, benchmark in places.iter_rows()
    }


def advised_budgets(advice: pl.DataFrame, choices: Choices) -> pl.DataFrame:
    """The budget that was chosen for each model and benchmark; and the cheapest that more problems might confirm, where
    that is cheaper: undecided, with a difference within the margin, and shown to save something.

    Returns:
        Rows of `advice`, at most two of a model and benchmark. Sorted as there.
    """
    place = ["model", "benchmark"]
    chosen = pl.DataFrame([row for row in choices.values() if isinstance(row, dict)], advice.schema)
    open_ = advice.filter(
        pl.col("saved_low") > 0,
        pl.col("difference") >= -pl.col("margin"),
        verdict=NonInferiority.UNDECIDED,
        strategy=SERVED,
    )
    open_ = open_.group_by(place, maintain_order=True).first()
    cheaper = open_.join(chosen.select(*place, least="cost"), on=place, how="left").filter(
        (pl.col("cost") < pl.col("least")).fill_null(True)
    )
    return pl.concat([chosen, cheaper.select(chosen.columns)]).sort(*place, "cost")
