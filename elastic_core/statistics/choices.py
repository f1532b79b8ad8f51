"""Which cell to run under a limit: the most accurate one that costs at most so much, and the cheapest one that gives up
at most so many points. Both are picks of many, and each comes with what is known in spite of the picking.

`problems` is the `problem_table` of a trajectory table by its cells, with `score` in [0, 1]. A model is looked at on
one benchmark at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import floor, log10

import polars as pl

from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.advice import SERVED, judged
from elastic_core.statistics.budgets import comparable, differences_together
from elastic_core.statistics.cost import CostModel
from elastic_core.statistics.simultaneous import NonInferiority
from elastic_core.trajectory import CELL

MARGINS = (0.01, 0.02, 0.05, 0.1)
"""Of accuracy, in [0, 1]."""
_ROUND = (1, 1.5, 2, 3, 5, 7)
_PLACE = ["model", "benchmark"]


def cheapest_within(advice: pl.DataFrame, margins: Sequence[float] = MARGINS) -> pl.DataFrame:
    """For each model, benchmark and margin the cheapest budget that is shown to be at most so far below unconstrained;
    where there is none the nearest miss, whose lower bound is highest. Each margin is a test of its own (`judged`), of
    the strategy that a server keeps budgets by.

    Args:
        advice: of `budget_advice`.

    Returns:
        Rows of `advice` with `margin` and `verdict` of the margin that each was picked for.
    """
    picks = [advice.clear()]
    served = advice.filter(strategy=SERVED)
    for _, budgets in served.sort(*_PLACE, "cost").partition_by(_PLACE, as_dict=True, maintain_order=True).items():
        nearest = budgets.sort("low", "difference", descending=True, maintain_order=True).head(1)
        for margin in margins:
            holds = judged(budgets, margin).filter(verdict=NonInferiority.HOLDS).head(1)
            verdict = NonInferiority.UNDECIDED if holds.is_empty() else NonInferiority.HOLDS
            pick = nearest if holds.is_empty() else holds
            picks.append(pick.with_columns(margin=pl.lit(margin), verdict=pl.lit(str(verdict))))
    return pl.concat(picks)


def best_under(problems: pl.DataFrame, models: Mapping[str, CostModel]) -> pl.DataFrame:
    """For each model and benchmark, under limits in round numbers, the most accurate cell as measured whose mean cost
    is at most the limit. All pairs of a model's cells are looked at together (`simultaneous`): `num_close` counts the
    others under the limit that are not shown to be less accurate than the one that was picked.

    Args:
        problems: with the columns `WORK`.
        models: of costs, by model.

    Returns:
        A row per limit at which another cell is best. Columns: CELL, limit, cost, accuracy with accuracy_low and
        accuracy_high (its own interval, which knows nothing of the choice), num_others, num_close, num_problems,
        num_trajectories.
    """
    found = []
    for (model, _), cells in problems.partition_by(_PLACE, as_dict=True, maintain_order=True).items():
        sides = comparable(cells, *CELL)
        if not sides:
            continue
        costs = [float(models[str(model)].of_problems(side).mean()) for side in sides]
        scores = [mean_score(side) for side in sides]
        pairs = list(combinations(range(len(sides)), 2))
        together = differences_together([(sides[a], sides[b]) for a, b in pairs])
        apart = {pair: one.low > 0 or one.high < 0 for pair, one in zip(pairs, together, strict=True)}
        last = None
        for limit in round_limits(costs):
            there = [i for i, cost in enumerate(costs) if cost <= limit]
            best = max(there, key=lambda i: (scores[i].mean, -costs[i]))
            if best == last:
                continue
            last = best
            close = sum(not apart[min(best, i), max(best, i)] for i in there if i != best)
            key = (sides[best][name][0] for name in CELL)
            found.append((*key, limit, costs[best], *scores[best][:3], len(there) - 1, close, *scores[best][3:5]))
    values = dict.fromkeys(("limit", "cost", "accuracy", "accuracy_low", "accuracy_high"), pl.Float64)
    counts = dict.fromkeys(("num_others", "num_close", "num_problems", "num_trajectories"), pl.Int64)
    schema = {name: problems.schema[name] for name in CELL} | values | counts
    return pl.DataFrame(found, schema, orient="row").sort(*_PLACE, "limit")


def round_limits(costs: Sequence[float]) -> list[float]:
    """Round numbers from the first that any of the costs keeps to, up to the first that all keep to."""
    low, high = min(costs), max(costs)
    exponents = range(floor(log10(low)), floor(log10(high)) + 2) if low > 0 else range(floor(log10(max(high, 1))) + 2)
    ladder = [digit * 10.0**exponent for exponent in exponents for digit in _ROUND]
    enough = next(number for number in ladder if number >= high)
    return [number for number in ladder if low <= number <= enough]
