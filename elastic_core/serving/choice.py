"""Which budgets become effort levels: chosen from what was measured, by a rule that does not trust luck.

Of a model's budgets those on the frontier of accuracy and tokens may become levels, as measured. `high` is the cheapest
of them that is shown to be within the margin of the most accurate one; `minimal` is the cheapest of all; `low` and
`medium` are the cheapest with a third and two thirds of the accuracy that `high` has over `minimal`. A budget that fits
two names has the higher one, so there may be fewer levels than names.

Both ends of a difference are picked by what was measured, so all budgets are held against each other with intervals
that hold together (`simultaneous`): a pick that was lucky is not shown to be within anything. With few problems `high`
is the most accurate budget itself.

A level's accuracy is cross-fitted: the problems are split into halves, and each half is scored under the budget that
the rule chooses by the other half. The accuracy of the chosen budget itself would be partly the luck it was chosen for.
The estimate and its bounds are means over several splits: those of a single split depend on it, and with more folds
than two the folds' choices share problems, which makes the estimate vary by more than its interval says.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.serving.levels import EFFORTS, Effort, Gain, Level
from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.advice import MARGIN
from elastic_core.statistics.budgets import comparable, differences_together
from elastic_core.statistics.cost import on_frontier, p95
from elastic_core.statistics.estimates import Estimate, mean_tokens, problem_table
from elastic_core.trajectory import BUDGET

COLUMNS = ("benchmark", "problem", *BUDGET, "score", "think_tokens", "solution_tokens", "forced_tokens")
"""What is read of a trajectory table."""
_SHARES: dict[Effort, float] = {"minimal": 0, "low": 1 / 3, "medium": 2 / 3}
"""Of the accuracy that `high` has over `minimal`, what the other levels must have."""
_SPLITS = 5
_SEED = 0


class Choice(NamedTuple):
    """What was chosen.

    Attributes:
        levels: from the cheapest to the dearest.
        num_budgets: how many were compared: those that have as many problems as any.
        num_frontier: of these, on the frontier.
        left_out: how many have fewer problems.
        best: accuracy of `high` over the most accurate budget; None where it is that budget.
    """

    levels: dict[Effort, Level]
    num_budgets: int
    num_frontier: int
    left_out: int
    best: Gain | None


def choose_levels(rows: pl.DataFrame, margin: float = MARGIN) -> Choice:
    """The effort levels of one model.

    Args:
        rows: of a trajectory table, of one model and strategy, with `COLUMNS`; budgets are limited. A problem counts
            the same whichever benchmark it is of.
        margin: in [0, 1], of accuracy.

    Raises:
        ValueError: on no rows, or a score that is missing or outside [0, 1].
    """
    tokens = pl.sum_horizontal("think_tokens", "solution_tokens", "forced_tokens").cast(pl.Float64)
    rows = rows.with_columns(tokens=tokens, problem=pl.concat_str("benchmark", "problem", separator="/"))
    problems = problem_table(rows, ["score", "tokens"], BUDGET)
    sides = comparable(problems, *BUDGET)
    chosen, frontier, gains = _chosen(sides, margin)
    crossed = _cross_fitted(sides, chosen, margin)
    found = {effort: _level(sides[cell], rows, crossed[effort]) for effort, cell in chosen.items()}
    below = {upper: gains[chosen[upper], chosen[lower]] for lower, upper in pairwise(chosen)}
    levels = {effort: level.model_copy(update={"gain": below.get(effort)}) for effort, level in found.items()}
    left_out = problems.n_unique(BUDGET) - len(sides)
    best = frontier[-1]
    return Choice(
        levels, len(sides), len(frontier), left_out, None if chosen["high"] == best else gains[chosen["high"], best]
    )


def _chosen(
    sides: list[pl.DataFrame], margin: float
) -> tuple[dict[Effort, int], list[int], dict[tuple[int, int], Gain]]:
    """Which of the cells become levels, from the cheapest to the dearest; the frontier; all gains."""
    cells = pl.DataFrame([_cell(side) for side in sides]).with_row_index("cell").sort("tokens_mean", "cell")
    frontier = cells.filter(on_frontier("tokens_mean", "accuracy"))["cell"].to_list()
    gains = _gains(sides)
    best = frontier[-1]
    high = next(cell for cell in frontier if cell == best or gains[cell, best].low >= -margin)
    accuracies = dict(cells.select("cell", "accuracy").iter_rows())
    lowest = accuracies[frontier[0]]
    chosen: dict[int, Effort] = {}
    for effort, share in _SHARES.items():
        least = lowest + share * (accuracies[high] - lowest)
        chosen[next(cell for cell in frontier if accuracies[cell] >= least)] = effort
    chosen[high] = "high"
    return {effort: cell for cell, effort in chosen.items()}, frontier, gains


def _cross_fitted(sides: list[pl.DataFrame], chosen: dict[Effort, int], margin: float) -> dict[Effort, Estimate]:
    """Accuracy of each level where every problem is scored under the budget that the level has by the other half of the
    problems. A level that is missing there is the next higher one."""
    random = np.random.default_rng(_SEED)
    found: dict[Effort, list[Estimate]] = {effort: [] for effort in chosen}
    for _ in range(_SPLITS):
        first = pl.Series(random.permutation(sides[0].height) % 2 == 0)
        halves = [[side.filter(half) for side in sides] for half in (first, ~first)]
        others = [_chosen(half, margin)[0] if half[0].height else chosen for half in reversed(halves)]
        for effort, estimates in found.items():
            scored = pl.concat(
                half[other[_or_higher(effort, other)]] for half, other in zip(halves, others, strict=True)
            )
            estimates.append(mean_score(scored))
    crossed = {}
    for effort, estimates in found.items():
        mean, low, high = np.mean([each[:3] for each in estimates], axis=0).tolist()
        crossed[effort] = estimates[0]._replace(mean=mean, low=low, high=high)
    return crossed


def _or_higher(effort: Effort, levels: Collection[Effort]) -> Effort:
    return min((name for name in levels if EFFORTS.index(name) >= EFFORTS.index(effort)), key=EFFORTS.index)


def _cell(side: pl.DataFrame) -> dict[str, float]:
    return {"accuracy": mean_score(side).mean, "tokens_mean": mean_tokens(side, "tokens").mean}


def _gains(sides: list[pl.DataFrame]) -> dict[tuple[int, int], Gain]:
    """Accuracy of the first over the second of each two cells."""
    pairs = list(combinations(range(len(sides)), 2))
    found = {}
    together = differences_together([(sides[first], sides[second]) for first, second in pairs])
    for (first, second), one in zip(pairs, together, strict=True):
        mean, low, high = (round(value, 6) for value in one[:3])
        found[first, second] = Gain(mean=mean, low=low, high=high)
        found[second, first] = Gain(mean=-mean, low=-high, high=-low)
    return found


def _level(side: pl.DataFrame, rows: pl.DataFrame, accuracy: Estimate) -> Level:
    """Args:
    accuracy: of `_cross_fitted`.
    """
    think, solution = (side[name][0] for name in BUDGET)
    responses = rows.filter(think_budget=think, solution_budget=solution).join(side, on="problem", how="semi")
    return Level(
        think=think,
        solution=solution,
        accuracy=round(accuracy.mean, 6),
        accuracy_low=round(accuracy.low, 6),
        accuracy_high=round(accuracy.high, 6),
        num_problems=accuracy.num_problems,
        num_samples=int(side["num_samples"].min()),  # type: ignore[arg-type]
        tokens_mean=round(mean_tokens(side, "tokens").mean, 6),
        tokens_p95=p95(responses, "tokens").mean,
    )
