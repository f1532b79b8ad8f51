"""Which budget to set: one rule for the report, the effort levels, the model card and the server.

It is the cheapest of a model's budgets under `SERVED` and its stop rules that

- is certified (`elastic_core.statistics.certificates`) to be at most a margin below the model's responses without a
  limit, if the context cuts these seldom enough to speak for unlimited thinking;
- is shown to save something, and to be better than guessing;
- is not shown to be beaten by more than the margin, by any budget or model of the table.

Without one the rule gives the `Reason`, and nothing is advised.

`problems` is the `problem_table` of a trajectory table by its cells (`with_looks`), with `score` in [0, 1] and the
columns `WORK`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import mean_score, score_difference
from elastic_core.statistics.budgets import comparable, differences_together
from elastic_core.statistics.certificates import MARGIN, MARGINS, SERVABLE, candidates, certificates
from elastic_core.statistics.cost import TOKENS, CostModel
from elastic_core.statistics.estimates import ratio_of_means
from elastic_core.statistics.intervals import LEVEL
from elastic_core.strategies import FREE, SERVED
from elastic_core.trajectory import CELL

_PLACE = ["model", "benchmark"]


class NonInferiority(StrEnum):
    """Whether accuracy is at most a margin below that of responses without a limit."""

    CERTIFIED = "certified"
    FAILS = "fails"
    UNDECIDED = "undecided"


class Reason(StrEnum):
    """Why no budget of a model is advised."""

    UNMEASURED = "responses without a limit, or under limits, are not measured on all problems"
    CAPPED = "too many of its responses without a limit were cut to say what unlimited thinking would give"
    NOT_CERTIFIED = "none is certified to be within the margin of unlimited thinking"
    NO_SAVING = "those within the margin of unlimited thinking are not shown to save anything"
    GUESSING = "the model is not shown to be better than guessing"
    BEATEN = "another budget or model of the table is shown to be better by more than the margin"


Choices = Mapping[tuple[str, str], dict[str, Any] | Reason]  # By model and benchmark, of `choose_budgets`.

_ADVICE: dict[str, Any] = {
    **dict.fromkeys(("cost", "free_cost", "saved", "saved_low", "saved_high", "difference", "low", "high"), pl.Float64),
    "free_cut": pl.Float64,
    **dict.fromkeys(("free_cap", "num_problems", "num_trajectories"), pl.Int64),
}


def budget_advice(
    problems: pl.DataFrame,
    model: CostModel = TOKENS,
    margin: float = MARGIN,
    level: float = LEVEL,
    certified: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Every budget that a server keeps against unconstrained responses of the same model, at a margin in [0, 1].

    A row per candidate of a model and benchmark that has unconstrained responses, cheapest first. Columns: `CELL`; cost
    and free_cost, means; saved with saved_low and saved_high, the share of free_cost, negative where the budget costs
    more; difference of accuracy with low and high, in [-1, 1]; free_cut, the share of unconstrained responses that a
    limit cut, and free_cap, the tokens of the longest of these; num_problems, num_trajectories; within and
    problems_needed as of `certificates`, or of `certified` where that is given; margin and verdict (`NonInferiority`).
    """
    found = []
    for each in (one for there in candidates(problems) for one in there):
        costs = model.of_problems(each.side), model.of_problems(each.free)
        ratio, low, high = ratio_of_means(*costs)
        difference = score_difference(each.side, each.free)
        cost = float(costs[0].mean()), float(costs[1].mean()), 1 - ratio, 1 - high, 1 - low
        reference = each.free["cut"].mean(), each.free["cap"].max()
        found.append((*each.key, *cost, *difference[:3], *reference, *difference[3:5]))
    schema = {name: problems.schema[name] for name in CELL} | _ADVICE
    if certified is None:
        certified = certificates(problems, margin, level)
    advice = pl.DataFrame(found, schema, orient="row").join(certified, on=CELL, nulls_equal=True, how="left")
    return judged(advice.sort(*_PLACE, "cost", *CELL, nulls_last=True), margin)


def judged(advice: pl.DataFrame, margin: float) -> pl.DataFrame:
    """Rows of `budget_advice` with the verdicts of another margin."""
    verdict = (
        pl.when(pl.col("within") <= margin)
        .then(pl.lit(str(NonInferiority.CERTIFIED)))
        .when(pl.col("high") < -margin)
        .then(pl.lit(str(NonInferiority.FAILS)))
        .otherwise(pl.lit(str(NonInferiority.UNDECIDED)))
    )
    return advice.with_columns(margin=pl.lit(margin), verdict=verdict)


def choose_budgets(advice: pl.DataFrame, problems: pl.DataFrame, guesses: Mapping[str, float] | None = None) -> Choices:
    """The budget to serve each model with for tasks like each benchmark's, at the margin of `advice`: a row of
    `advice`, or the reason why there is none, that of the candidates which came furthest.

    What may beat it is any single model of `problems`, under `SERVED` or without a limit: it does where it is shown to
    be more accurate (all together, `simultaneous`), as measured by more than the margin. `guesses` are the accuracy of
    guessing, in [0, 1], by benchmark, 0 without.
    """
    standing = {name: _standing(problems, name) for name in problems["benchmark"].unique()}
    return {
        (model, benchmark): _choose(
            advice.filter(model=model, benchmark=benchmark), standing[benchmark], (guesses or {}).get(benchmark, 0.0)
        )
        for model, benchmark in problems.select(_PLACE).unique().sort(_PLACE).iter_rows()
    }


def _choose(advice: pl.DataFrame, standing: _Standing, guess: float) -> dict[str, Any] | Reason:
    if advice.filter(strategy=SERVED).is_empty():
        return Reason.UNMEASURED
    if advice["free_cut"][0] > advice["margin"][0]:
        return Reason.CAPPED
    return _cheapest(advice.filter(verdict=NonInferiority.CERTIFIED), standing, guess)


def _cheapest(holds: pl.DataFrame, standing: _Standing, guess: float) -> dict[str, Any] | Reason:
    if holds.is_empty():
        return Reason.NOT_CERTIFIED
    saving = holds.filter(pl.col("saved_low") > 0).sort("cost")
    reason = Reason.NO_SAVING if saving.is_empty() else Reason.GUESSING
    for row in saving.iter_rows(named=True):
        accuracy, ahead = standing(tuple(row[name] for name in CELL))
        if accuracy > guess + min(row["margin"], MARGIN):
            if ahead <= row["margin"]:
                return row
            reason = Reason.BEATEN
    return reason


_Standing = Callable[[tuple[Any, ...]], tuple[float, float]]
"""Of a cell: the lower bound of its accuracy, and by how much another cell is better that is shown to be, in [0, 1]."""


def _standing(problems: pl.DataFrame, benchmark: str) -> _Standing:
    servable = SERVABLE | pl.col("strategy").eq(FREE), ~pl.col("model").str.contains(">")
    found = comparable(problems.filter(*servable, benchmark=benchmark), *CELL)
    cells = {cell.select(CELL).row(0): cell for cell in found}

    @cache
    def of(key: tuple[Any, ...]) -> tuple[float, float]:
        if key not in cells:
            return -np.inf, 0.0
        together = differences_together([(other, cells[key]) for name, other in cells.items() if name != key])
        return mean_score(cells[key]).low, max((each.mean for each in together if each.low > 0), default=0.0)

    return of


def advised_budgets(advice: pl.DataFrame, choices: Choices) -> pl.DataFrame:
    """Rows of `advice`, at most two of a model and benchmark: the budget that was chosen, and the cheapest that more
    problems might confirm, where that is cheaper: undecided, with a difference within the margin, and shown to save."""
    chosen = pl.DataFrame([row for row in choices.values() if isinstance(row, dict)], advice.schema)
    open_ = advice.filter(
        pl.col("saved_low") > 0,
        pl.col("difference") >= -pl.col("margin"),
        verdict=NonInferiority.UNDECIDED,
        strategy=SERVED,
    )
    open_ = open_.group_by(_PLACE, maintain_order=True).first()
    cheaper = open_.join(chosen.select(*_PLACE, least="cost"), on=_PLACE, how="left").filter(
        (pl.col("cost") < pl.col("least")).fill_null(True)
    )
    return pl.concat([chosen, cheaper.select(chosen.columns)]).sort(*_PLACE, "cost")


def cheapest_within(
    advice: pl.DataFrame,
    problems: pl.DataFrame,
    guesses: Mapping[str, float] | None = None,
    margins: Sequence[float] = MARGINS,
) -> pl.DataFrame:
    """The rule at several margins, which hold together, for each model and benchmark; where it chooses none the nearest
    miss, which is certified to be `within` least. Rows of `advice` with the `margin` that each was picked for, its
    `verdict`, and `reason`, null where the rule chose it."""
    picks = [advice.clear().with_columns(reason=pl.lit(None, pl.String))]
    standing = {name: _standing(problems, name) for name in problems["benchmark"].unique()}
    served = advice.filter(strategy=SERVED).sort(*_PLACE, "cost")
    for (_, benchmark), budgets in served.partition_by(_PLACE, as_dict=True, maintain_order=True).items():
        nearest = budgets.sort("within", -pl.col("low"), -pl.col("difference"), maintain_order=True).row(0, named=True)
        guess = (guesses or {}).get(str(benchmark), 0.0)
        for margin in margins:
            found = _choose(judged(budgets, margin), standing[benchmark], guess)
            if isinstance(found, Reason):
                found = nearest | {"margin": margin, "verdict": str(NonInferiority.UNDECIDED), "reason": str(found)}
            picks.append(pl.DataFrame([{"reason": None} | found], picks[0].schema))
    return pl.concat(picks)
