"""Which budget to set: one rule, whose result the report, the effort levels, the model card and the server read.

Of the budgets of a model that a server keeps (`SERVED`), and its stop rules where there are any, it is the cheapest one

- whose accuracy is certified to be at most a margin below that of the same model's responses without a limit, paired by
  problem, over problems that all cells have; where none is, a budget that is shown to be;
- that is shown to save something, and to be better than guessing;
- that no budget or model of the table is shown to beat by more than the margin.

Where there is none the rule says which of these is missing (`Reason`), and nothing is advised.

*Certified* is a promise (Learn then Test: Angelopoulos et al. 2021, arXiv 2110.01052). The candidates are fixed before
the table is seen: its budgets, and rules of 2 and of 3 answers in a row, in chains from the one that thinks longest
down. Each is tested by betting (`elastic_core.statistics.betting`) at an equal share of the level, a chain up to its
first failure. That any certified candidate loses more than the margin has a chance of at most the level, whatever the
losses look like and however the choice among the certified is made. It holds for problems like these: exchangeable with
them. *Shown* is the one-sided test of `paired_interval`, at 5 % for the budgets of a strategy; it
needs fewer problems, and promises less: docs/numbers.md.

`problems` is the `problem_table` of a trajectory table by its cells, with `score` in [0, 1] and the columns `WORK`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.betting import harm_p_value, problems_at_least, problems_for
from elastic_core.statistics.budgets import comparable, differences_together
from elastic_core.statistics.cost import TOKENS, CostModel
from elastic_core.statistics.estimates import FREE, paired_scores, ratio_of_means
from elastic_core.statistics.intervals import (
    LEVEL,
    Estimate,
    paired_interval,
    problems_needed,
    seed_half_widths,
    with_seeds,
)
from elastic_core.stop_rule import ADAPTIVE, StopRule
from elastic_core.trajectory import BUDGET, CELL

MARGIN = 0.02  # How far below unconstrained accuracy a budget may be, unless told otherwise: two points.
MARGINS = (0.01, 0.02, 0.05, 0.1)  # Of `cheapest_within`, in [0, 1].
SERVED = "separate"  # The strategy that a server keeps budgets by.
_PLACE = ["model", "benchmark"]


class NonInferiority(StrEnum):
    """A test of non-inferiority: whether accuracy is at most a margin below that of a reference."""

    CERTIFIED = "certified"
    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


WITHIN = (NonInferiority.CERTIFIED, NonInferiority.HOLDS)  # What is advised on.


class Reason(StrEnum):
    """Why no budget of a model is advised."""

    UNMEASURED = "responses without a limit, or under limits, are not measured on all problems"
    NOT_SHOWN = "none is shown to be within the margin of unlimited thinking"
    NOT_CERTIFIED = "none is certified to be within the margin of unlimited thinking"
    NO_SAVING = "those within the margin of unlimited thinking are not shown to save anything"
    GUESSING = "the model is not shown to be better than guessing"
    BEATEN = "another budget or model of the table is shown to be better by more than the margin"


Choices = Mapping[tuple[str, str], dict[str, Any] | Reason]  # By model and benchmark, of `choose_budgets`.

_ADVICE: dict[str, Any] = {
    **dict.fromkeys(("cost", "free_cost", "saved", "saved_low", "saved_high", "difference", "low", "high"), pl.Float64),
    "margin": pl.Float64,
    "verdict": pl.String,
    "problems_needed": pl.Float64,
    "chain": pl.String,
    "place": pl.Int64,
    "losses": pl.List(pl.Float64),
    **dict.fromkeys(("num_problems", "num_trajectories"), pl.Int64),
}


def budget_advice(
    problems: pl.DataFrame, model: CostModel = TOKENS, margin: float = MARGIN, level: float = LEVEL
) -> pl.DataFrame:
    """Every budget against unconstrained responses of the same model: tests of non-inferiority, at a margin in [0, 1].

    The budgets of a strategy are tested in a fixed sequence, from the largest down, each at the whole level; where one
    is not shown to be within the margin, the smaller ones are not either (Maurer, Hothorn and Lehmacher 1995; Wiens
    2003, "A fixed sequence Bonferroni procedure"). So that any budget of a strategy is wrongly called within the margin
    has a chance of at most 5 %, without a price for their number. A certificate is at `level`, over all chains.

    A row per limited cell of a model and benchmark that has unconstrained responses, cheapest first. Columns: `CELL`;
    cost and free_cost, means; saved with saved_low and saved_high, the share of free_cost, negative where the budget
    costs more; difference of accuracy with low and high, its one-sided 95 % bounds, in [-1, 1]; margin; verdict
    (`NonInferiority`) and problems_needed to decide it (null: no number would); the chain that it is tested in, its
    place there, and the losses by problem that are bet on; num_problems, num_trajectories.
    """
    found = []
    for cells in problems.partition_by(_PLACE):
        sides = comparable(cells, *CELL)
        without_limit = [side for side in sides if side["strategy"][0] == FREE]
        for free, side in product(without_limit[:1], sides):
            if side is free:
                continue
            costs = model.of_problems(side), model.of_problems(free)
            ratio, low, high = ratio_of_means(*costs)
            loss = _one_sided(side, free)
            needed = problems_needed(loss.mean + margin, loss.mean - loss.low, loss.seeds, side.height)
            found.append(
                (
                    *_key(side),
                    *(float(costs[0].mean()), float(costs[1].mean()), 1 - ratio, 1 - high, 1 - low),
                    *loss[:3],
                    *(margin, None, needed if np.isfinite(needed) else None),
                    *_candidate(side),
                    _losses(side, free),
                    *loss[3:5],
                )
            )
    schema = {name: problems.schema[name] for name in CELL} | _ADVICE
    advice = pl.DataFrame(found, schema, orient="row").sort(*_PLACE, "cost", *CELL, nulls_last=True)
    return judged(advice, margin, level)


def _candidate(side: pl.DataFrame) -> tuple[str, int]:
    """The chain of a budget or stop rule, and its place in it: the one that thinks longest has the largest."""
    strategy, think, solution = (side[name][0] for name in ("strategy", *BUDGET))
    if strategy.startswith(ADAPTIVE) and think is None:
        rule = StopRule.parse(strategy)
        return f"{_RULES}{rule.agree}", next(rule.rungs(None))
    think, solution = (_UNLIMITED if limit is None else limit for limit in (think, solution))
    return strategy, (think + solution) * _UNLIMITED + think


_RULES = f"{ADAPTIVE} "  # What the names of their chains begin with.
_PROMISED = pl.col("chain").eq(SERVED) | pl.col("chain").str.starts_with(_RULES)
"""Whether a candidate is in a chain that a certificate is tried for."""
_UNLIMITED = 2**30  # More tokens than any budget has.


def _losses(side: pl.DataFrame, free: pl.DataFrame) -> list[float]:
    """Losses by problem, in an order that does not depend on what was measured."""
    values, _ = paired_scores(side, free)
    digests = (hashlib.blake2b(str(problem).encode(), digest_size=8).digest() for problem in side["problem"])
    return [float(loss) for _, loss in sorted(zip(digests, -values.mean(axis=0), strict=True))]


def judged(advice: pl.DataFrame, margin: float, level: float = LEVEL) -> pl.DataFrame:
    """Rows of `budget_advice` with the verdicts of another margin, and of a certificate at another level."""
    order = pl.col("place").rank("ordinal", descending=True)
    least = pl.col("low").cum_min().over(*_PLACE, "chain", order_by=order)
    chains = pl.col("chain").filter(_PROMISED).n_unique().over(_PLACE)
    tested = advice.select(promised=_PROMISED, share=level / chains, losses="losses").iter_rows()
    passed = [asked and harm_p_value(np.array(losses), margin, share) <= share for asked, share, losses in tested]
    advice = advice.with_columns(pl.Series(passed, dtype=pl.Boolean).cast(pl.Int8).alias(_PASSED))
    verdict = (
        pl.when(pl.col(_PASSED).cum_min().over(*_PLACE, "chain", order_by=order) == 1)
        .then(pl.lit(str(NonInferiority.CERTIFIED)))
        .when(least >= -margin)
        .then(pl.lit(str(NonInferiority.HOLDS)))
        .when(pl.col("high") < -margin)
        .then(pl.lit(str(NonInferiority.FAILS)))
        .otherwise(pl.lit(str(NonInferiority.UNDECIDED)))
    )
    return advice.with_columns(margin=pl.lit(margin), verdict=verdict).drop(_PASSED)


_PASSED = "passed"


def _one_sided(side: pl.DataFrame, free: pl.DataFrame) -> Estimate:
    """The paired difference of accuracy; its bounds are one-sided, 95 % each."""
    values, trajectories = paired_scores(side, free)
    differences = values.mean(axis=0)
    counts = side.height, trajectories
    if len(differences) < 2:
        return Estimate(float(differences.mean()), -1.0, 1.0, *counts)
    mean = float(differences.mean())
    (seeds,) = seed_half_widths([values])
    bounds = with_seeds(mean, paired_interval(differences, LEVEL), seeds, (-1.0, 1.0))
    return Estimate(mean, *bounds, *counts, seeds)


def problems_to_certify(advice: pl.DataFrame, margin: float, level: float = LEVEL) -> tuple[int, int | None]:
    """How many problems a certificate takes where nothing is lost, and how many like those of `advice`, of one model
    and benchmark, would certify something that saves; None where `_MOST_PROBLEMS` would not."""
    share = level / max(1, advice.filter(_PROMISED)["chain"].n_unique())
    enough: list[int] = []
    for chain in advice.filter(_PROMISED).partition_by("chain"):
        needed = 0  # of all that come before in the chain, too
        for row in chain.sort("place", descending=True).iter_rows(named=True):
            found = problems_for(np.array(row["losses"]), margin, share, _MOST_PROBLEMS)
            if found is None:
                break
            needed = max(needed, found)
            if row["saved_low"] > 0:
                enough.append(needed)
                break
    return problems_at_least(margin, share), min(enough, default=None)


_MOST_PROBLEMS = 20_000


def choose_budgets(
    advice: pl.DataFrame,
    problems: pl.DataFrame,
    guesses: Mapping[str, float] | None = None,
    only_certified: bool = False,
) -> Choices:
    """The budget to serve each model with for tasks like each benchmark's, at the margin of `advice`: a row of
    `advice`, or the reason why there is none, that of the candidates which came furthest.

    What may beat it is any single model of `problems`, under `SERVED` or without a limit: it does where it is shown to
    be more accurate (all together, `simultaneous`), as measured by more than the margin. `guesses` are the accuracy of
    guessing, in [0, 1], by benchmark, 0 without. With `only_certified` what is shown will not do.
    """
    standing = {name: _standing(problems, name) for name in problems["benchmark"].unique()}
    return {
        (model, benchmark): _choose(
            advice.filter(model=model, benchmark=benchmark),
            standing[benchmark],
            (guesses or {}).get(benchmark, 0.0),
            only_certified,
        )
        for model, benchmark in problems.select(_PLACE).unique().sort(_PLACE).iter_rows()
    }


def _choose(
    advice: pl.DataFrame, standing: _Standing, guess: float, only_certified: bool = False
) -> dict[str, Any] | Reason:
    if advice.filter(strategy=SERVED).is_empty():
        return Reason.UNMEASURED
    certified = _cheapest(advice.filter(verdict=NonInferiority.CERTIFIED), standing, guess)
    if only_certified or not isinstance(certified, Reason):
        return Reason.NOT_CERTIFIED if certified is Reason.NOT_SHOWN else certified
    return _cheapest(advice.filter(pl.col("verdict").is_in(WITHIN), strategy=SERVED), standing, guess)


def _cheapest(holds: pl.DataFrame, standing: _Standing, guess: float) -> dict[str, Any] | Reason:
    if holds.is_empty():
        return Reason.NOT_SHOWN
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
    known = pl.col("strategy").is_in([SERVED, FREE]) | pl.col("strategy").str.starts_with(ADAPTIVE)
    servable = known, ~pl.col("model").str.contains(">")
    cells = {_key(cell): cell for cell in comparable(problems.filter(*servable, benchmark=benchmark), *CELL)}

    @cache
    def of(key: tuple[Any, ...]) -> tuple[float, float]:
        if key not in cells:
            return -np.inf, 0.0
        together = differences_together([(other, cells[key]) for name, other in cells.items() if name != key])
        return mean_score(cells[key]).low, max((each.mean for each in together if each.low > 0), default=0.0)

    return of


def _key(cell: pl.DataFrame) -> tuple[Any, ...]:
    return tuple(cell[name][0] for name in CELL)


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
    """The rule at several margins, each a test of its own, for each model and benchmark; where it chooses none the
    nearest miss, whose lower bound is highest. Rows of `advice` with the `margin` that each was picked for, its
    `verdict`, and `reason`, null where the rule chose it."""
    picks = [advice.clear().with_columns(reason=pl.lit(None, pl.String))]
    standing = {name: _standing(problems, name) for name in problems["benchmark"].unique()}
    served = advice.filter(strategy=SERVED).sort(*_PLACE, "cost")
    for (_, benchmark), budgets in served.partition_by(_PLACE, as_dict=True, maintain_order=True).items():
        nearest = budgets.sort("low", "difference", descending=True, maintain_order=True).row(0, named=True)
        guess = (guesses or {}).get(str(benchmark), 0.0)
        for margin in margins:
            found = _choose(judged(budgets, margin), standing[benchmark], guess)
            if isinstance(found, Reason):
                found = nearest | {"margin": margin, "verdict": str(NonInferiority.UNDECIDED), "reason": str(found)}
            picks.append(pl.DataFrame([{"reason": None} | found], picks[0].schema))
    return pl.concat(picks)
