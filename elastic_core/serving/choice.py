"""Which budgets become effort levels, by the rule of `elastic_core.statistics.which_budget`.

`high` is the budget that the rule chooses, or where it chooses none the most accurate one as measured. The levels below
it are budgets on the frontier of accuracy and tokens, as measured, that are cheaper: `minimal` is the cheapest of all;
`low` and `medium` are the cheapest with a third and two thirds of the accuracy that `high` has over `minimal`. A budget
that fits two names has the higher one, so there may be fewer levels than names.

A level's accuracy is cross-fitted: the problems are split into halves, and each half is scored under the budget that is
chosen by the other half. The accuracy of the chosen budget itself would be partly the luck it was chosen for. The
estimate and its bounds are means over several splits: those of a single split depend on it, and with more folds than
two the folds' choices share problems, which makes the estimate vary by more than its interval says.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from elastic_core.serving.levels import EFFORTS, Effort, Gain, Level
from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.budgets import comparable, differences_together
from elastic_core.statistics.cost import on_frontier, p95
from elastic_core.statistics.estimates import FREE, mean_tokens, problem_table
from elastic_core.statistics.intervals import Estimate
from elastic_core.statistics.which_budget import MARGIN, SERVED, Reason, budget_advice, choose_budgets
from elastic_core.trajectory import BUDGET, CELL

COLUMNS = (
    "benchmark", "problem", "strategy", *BUDGET, "score", "prompt_tokens", "think_tokens", "solution_tokens",
    "forced_tokens",
)  # fmt: skip
"""What is read of a trajectory table."""
_SHARES: dict[Effort, float] = {"minimal": 0, "low": 1 / 3, "medium": 2 / 3}
"""Of the accuracy that `high` has over `minimal`, what the other levels must have."""
_LOSS = {"mean": "difference", "low": "low", "high": "high"}
_SPLITS = 5
_SEED = 0
_POOLED = {"model": pl.lit("model"), "benchmark": pl.lit("all")}
"""A model's problems of all benchmarks, as one place of `choose_budgets`."""

_Cell = tuple[int, int]
"""Thinking and solution budget."""


class Choice(NamedTuple):
    """Levels from the cheapest to the dearest. `num_budgets` that have as many problems as any were compared;
    `num_frontier` of them are on the frontier; `left_out` more have fewer problems. `rule` is the accuracy of `high`
    over responses without a limit, with one-sided 95 % bounds, where the rule chose it, else why it chose none."""

    levels: dict[Effort, Level]
    num_budgets: int
    num_frontier: int
    left_out: int
    rule: Gain | Reason


def choose_levels(rows: pl.DataFrame, margin: float = MARGIN) -> Choice:
    """The effort levels of one model.

    Args:
        rows: of a trajectory table, of one model, with `COLUMNS`: limited budgets of `SERVED`, and responses without a
            limit as far as there are any. A problem counts the same whichever benchmark it is of.
        margin: in [0, 1], of accuracy.

    Raises:
        ValueError: on no rows, or a score that is missing or outside [0, 1].
    """
    work = {
        "input_tokens": pl.col("prompt_tokens") + pl.col("forced_tokens"),
        "cached_tokens": pl.lit(0),
        "output_tokens": pl.col("think_tokens") + pl.col("solution_tokens"),
        "turns": pl.lit(1),
    }
    tokens = pl.sum_horizontal("think_tokens", "solution_tokens", "forced_tokens").cast(pl.Float64)
    name = pl.concat_str("benchmark", "problem", separator="/")
    rows = rows.with_columns(**work, tokens=tokens, problem=name).with_columns(**_POOLED)
    problems = problem_table(rows, ["score", "tokens", *work], CELL)
    limited = problems.filter(strategy=SERVED)
    sides = {_budget(side): side for side in comparable(limited, *BUDGET)}
    whole = next(iter(sides.values())).select("problem")
    free = problems.filter(strategy=FREE).join(whole, on="problem", how="semi")
    problems = pl.concat([*sides.values(), *([free] if free.height == whole.height else [])])
    chosen, num_frontier, rule = _chosen(problems, margin)
    crossed = _cross_fitted(problems, sides, chosen, margin)
    # Accuracy of the first over the second of each two budgets.
    pairs, gains = list(combinations(sides, 2)), {}
    together = differences_together([(sides[first], sides[second]) for first, second in pairs])
    for (first, second), one in zip(pairs, together, strict=True):
        mean, low, high = (round(value, 6) for value in one[:3])
        gains[first, second] = Gain(mean=mean, low=low, high=high)
        gains[second, first] = Gain(mean=-mean, low=-high, high=-low)
    below = {upper: gains[chosen[upper], chosen[lower]] for lower, upper in pairwise(chosen)}
    levels = {effort: _level(sides[cell], rows, crossed[effort], below.get(effort)) for effort, cell in chosen.items()}
    loss = rule if isinstance(rule, Reason) else Gain(**{end: round(rule[name], 6) for end, name in _LOSS.items()})
    return Choice(levels, len(sides), num_frontier, limited.n_unique(BUDGET) - len(sides), loss)


def _chosen(problems: pl.DataFrame, margin: float) -> tuple[dict[Effort, _Cell], int, dict[str, Any] | Reason]:
    """Which budgets become levels, from the cheapest to the dearest; how many are on the frontier; what the rule says.
    All cells have the same problems."""
    sides = problems.filter(strategy=SERVED).partition_by(BUDGET)
    means = [(*_budget(side), mean_score(side).mean, mean_tokens(side, "tokens").mean) for side in sides]
    cells = pl.DataFrame(means, [*BUDGET, "accuracy", "tokens"], orient="row").sort("tokens", *BUDGET)
    accuracy = {row[:2]: row[2] for row in cells.iter_rows()}
    tokens = {row[:2]: row[3] for row in cells.iter_rows()}
    frontier = cells.filter(on_frontier("tokens", "accuracy")).select(BUDGET).rows()
    rule = choose_budgets(budget_advice(problems, margin=margin), problems)["model", "all"]
    high = frontier[-1] if isinstance(rule, Reason) else (rule["think_budget"], rule["solution_budget"])
    cheaper = [cell for cell in frontier if tokens[cell] < tokens[high]]
    lowest = accuracy[frontier[0]]
    chosen: dict[_Cell, Effort] = {}
    for effort, share in _SHARES.items():
        least = lowest + share * (accuracy[high] - lowest)
        chosen[next((cell for cell in cheaper if accuracy[cell] >= least), high)] = effort
    chosen[high] = "high"
    return {effort: cell for cell, effort in chosen.items()}, len(frontier), rule


def _budget(side: pl.DataFrame) -> _Cell:
    think, solution = side.select(BUDGET).row(0)
    return think, solution


def _cross_fitted(
    problems: pl.DataFrame, sides: dict[_Cell, pl.DataFrame], chosen: dict[Effort, _Cell], margin: float
) -> dict[Effort, Estimate]:
    """Accuracy of each level where every problem is scored under the budget that the level has by the other half of the
    problems. A level that is missing there is the next higher one."""
    random = np.random.default_rng(_SEED)
    names = next(iter(sides.values())).select("problem")
    found: dict[Effort, list[Estimate]] = {effort: [] for effort in chosen}
    for _ in range(_SPLITS):
        first = pl.Series(random.permutation(names.height) % 2 == 0)
        halves = names.filter(first), names.filter(~first)
        others = [
            _chosen(problems.join(half, on="problem", how="semi"), margin)[0] if half.height else chosen
            for half in reversed(halves)
        ]
        for effort, estimates in found.items():
            scored = []
            for half, other in zip(halves, others, strict=True):
                there = next(name for name in EFFORTS[EFFORTS.index(effort) :] if name in other)
                scored.append(sides[other[there]].join(half, on="problem", how="semi"))
            estimates.append(mean_score(pl.concat(scored)))
    crossed = {}
    for effort, estimates in found.items():
        mean, low, high = np.mean([each[:3] for each in estimates], axis=0).tolist()
        crossed[effort] = estimates[0]._replace(mean=mean, low=low, high=high)
    return crossed


def _level(side: pl.DataFrame, rows: pl.DataFrame, accuracy: Estimate, gain: Gain | None) -> Level:
    think, solution = _budget(side)
    responses = rows.filter(strategy=SERVED, think_budget=think, solution_budget=solution)
    return Level(
        think=think,
        solution=solution,
        accuracy=round(accuracy.mean, 6),
        accuracy_low=round(accuracy.low, 6),
        accuracy_high=round(accuracy.high, 6),
        gain=gain,
        num_problems=accuracy.num_problems,
        num_samples=int(side["num_samples"].min()),  # type: ignore[arg-type]
        tokens_mean=round(mean_tokens(side, "tokens").mean, 6),
        tokens_p95=p95(responses.join(side, on="problem", how="semi"), "tokens").mean,
    )
