"""Effort levels of a model, by the rule of `elastic_core.statistics.which_budget`.

`high` is the budget or stop rule that the rule chooses, or where it chooses none the most accurate budget as measured.
The levels below are cheaper budgets on the frontier of accuracy and tokens, as measured: `minimal` the cheapest of all;
`low` and `medium` the cheapest with a third and two thirds of the accuracy that `high` has over `minimal`. A budget
that fits two names has the higher one.

A level's accuracy is cross-fitted, as that of the chosen budget is partly luck: each half of the problems is scored
under the budget chosen by the other half, averaged over several splits. With more than two folds their choices share
problems, and the estimate varies by more than its interval says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from elastic_core.serving.levels import EFFORTS, Effort, Gain, Level
from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.budgets import comparable, differences_together
from elastic_core.statistics.certificates import MARGIN, certificates, least_problems, with_looks
from elastic_core.statistics.cost import WORK, on_frontier, p95
from elastic_core.statistics.estimates import mean_tokens, problem_table
from elastic_core.statistics.frontier import Point
from elastic_core.statistics.intervals import LEVEL, Estimate, mean_share
from elastic_core.statistics.responses import LEAK, is_cut, leaks
from elastic_core.statistics.stopping import NotComparable, certifiable, read_thoughts, stopped_rows
from elastic_core.statistics.which_budget import Reason, budget_advice, choose_budgets
from elastic_core.strategies import FREE, SERVED
from elastic_core.strategies.variants import BARE, is_variant, split_variant
from elastic_core.trajectory import BUDGET, CELL

COLUMNS = (
    "benchmark", "problem", "sample", "strategy", *BUDGET, "score", "answer", "prompt_tokens", "think_tokens",
    "solution_tokens", "forced_tokens", "think_finish", "solution_finish", "solution_logprob",
    leaks().alias("leak"),
)  # fmt: skip
"""What is read of a trajectory table."""
_SHARES: dict[Effort, float] = {"minimal": 0, "low": 1 / 3, "medium": 2 / 3}
"""Of the accuracy that `high` has over `minimal`, what the other levels must have."""
_LOSS = {"mean": "difference", "low": "low", "high": "high"}
_SPLITS = 5
_SEED = 0
_MODEL, _ALL = "model", "all"
"""What a model is called here, and all its benchmarks together: one place of `choose_budgets`."""

_Cell = tuple[str, int | None, int | None]  # Strategy (`SERVED`, or a stop rule's), thinking and solution budget.
_CELL = ["strategy", *BUDGET]


class Choice(NamedTuple):
    """Levels from the cheapest to the dearest. `num_budgets` that have as many problems as any were compared;
    `num_frontier` of them are on the frontier; `left_out` more have fewer problems. `rule` is the accuracy of `high`
    over responses without a limit, with its 95 % interval, where the rule chose it, else why it chose none; `cap` the
    tokens at which some of these responses were cut, None where none was. `num_rules` stop rules were candidates too.
    `points` are the budgets with the solution budget of `high`. A certificate takes `least_problems` of a benchmark
    where nothing is lost; about `enough_problems` like those of the smallest would give one to a budget that saves
    something, None where no number would. `num_leaky` budgets were no candidates, as their solutions go on thinking."""

    levels: dict[Effort, Level]
    num_budgets: int
    num_frontier: int
    left_out: int
    rule: Gain | Reason
    cap: int | None = None
    num_rules: int = 0
    points: tuple[Point, ...] = ()
    least_problems: int = 0
    enough_problems: int | None = None
    num_leaky: int = 0


def choose_levels(
    rows: pl.DataFrame,
    margin: float = MARGIN,
    level: float = LEVEL,
    calibration: pl.DataFrame | None = None,
    with_rules: bool = True,
    guess: float = 0.0,
    leak: float = LEAK,
) -> Choice:
    """The effort levels of one model.

    Args:
        rows: of a trajectory table, of one model, with `COLUMNS`: limited budgets of `SERVED`, and responses without a
            limit as far as there are any. A problem counts the same whichever benchmark it is of.
        margin: in [0, 1], of accuracy, on each benchmark.
        level: of the certificate: the chance that its promise is broken.
        calibration: rows of another table of the model, by which `high` is chosen instead of these.
        with_rules: whether stop rules are candidates too.
        guess: accuracy of guessing, in [0, 1].
        leak: the share of responses that may go on thinking in their solution, in [0, 1]. A budget that is shown to
            have more, with a chance of `level` to be wrong, is no candidate.

    Raises:
        ValueError: on no rows, or a score that is missing or outside [0, 1].
        Leaky: where every budget goes on thinking more often.
    """
    rows, num_leaky = _without_leaks(rows, leak, level)
    rows = _with_rules(rows, with_rules)
    problems, sides = _problems(rows)
    held = problems
    if calibration is not None:
        cells = problems.select(_CELL).unique()
        held = _problems(_with_rules(calibration, with_rules))[0].join(cells, on=_CELL, how="semi", nulls_equal=True)
    advice = _advice(held, margin, level)
    rule = _ruled(advice, held, guess)
    chosen, num_frontier = _chosen(problems, rule)

    def of_half(half: pl.DataFrame) -> dict[Effort, _Cell]:
        return _chosen(half, rule if calibration is not None else _ruled(_advice(half, margin, level), half, guess))[0]

    crossed = _cross_fitted(problems, sides, chosen, of_half)
    # Accuracy of the first over the second of each two budgets.
    budgets = [cell for cell in sides if _is_served(cell)]
    pairs, gains = list(combinations(dict.fromkeys([*budgets, *chosen.values()]), 2)), {}
    together = differences_together([(sides[first], sides[second]) for first, second in pairs])
    for (first, second), one in zip(pairs, together, strict=True):
        mean, low, high = (round(value, 6) for value in one[:3])
        gains[first, second] = Gain(mean=mean, low=low, high=high)
        gains[second, first] = Gain(mean=-mean, low=-high, high=-low)
    below = {upper: gains[chosen[upper], chosen[lower]] for lower, upper in pairwise(chosen)}
    levels = {effort: _level(sides[cell], rows, crossed[effort], below.get(effort)) for effort, cell in chosen.items()}
    loss = rule if isinstance(rule, Reason) else Gain(**{end: round(rule[name], 6) for end, name in _LOSS.items()})
    strategy, _, solution = chosen["high"]
    worded = strategy if _is_served(chosen["high"]) else SERVED
    of_high = [sides[cell] for cell in budgets if (cell[0], cell[2]) == (worded, solution)]
    enough = advice.filter(pl.col("saved_low") > 0)["problems_needed"].min()
    return Choice(
        levels,
        len(budgets),
        num_frontier,
        rows.filter(is_variant(SERVED)).n_unique(_CELL) - len(budgets),
        loss,
        held.filter(strategy=FREE)["cap"].max(),  # type: ignore[arg-type]
        len(sides) - len(budgets),
        tuple(sorted((_point(side, rows) for side in of_high), key=lambda each: each.think)),
        least_problems(held, margin, level),
        None if enough is None else int(enough),  # type: ignore[arg-type,call-overload]
        num_leaky,
    )


class Leaky(ValueError):
    """Every budget goes on thinking in too many of its solutions."""


def _without_leaks(rows: pl.DataFrame, most: float, level: float) -> tuple[pl.DataFrame, int]:
    """Rows of budgets that are not shown to go on thinking in more than the share `most` of their responses, and the
    number of the others."""
    if "leak" not in rows.columns:  # Rows without their text.
        return rows, 0
    limited = rows.filter(pl.col("strategy") != FREE)
    cells = limited.partition_by(_CELL, as_dict=True)
    tables = {cell: problem_table(part, ["leak"], ["benchmark"]) for cell, part in cells.items()}
    lows = {cell: mean_share(table["leak"].to_numpy(), level, cells[cell].height)[0] for cell, table in tables.items()}
    leaky = [cell for cell, low in lows.items() if low > most]
    if leaky and len(leaky) == len(cells):
        raise Leaky(
            f"every budget goes on thinking in more than {100 * most:g} % of its solutions, the fewest in at least "
            f"{100 * min(lows.values()):.1f} %"
        )
    left_out = pl.DataFrame(leaky, rows.select(_CELL).schema, orient="row")
    return rows.join(left_out, on=_CELL, how="anti", nulls_equal=True), len(leaky)


def _with_rules(rows: pl.DataFrame, with_rules: bool) -> pl.DataFrame:
    """Add the columns `WORK` and tokens to rows, and the rows of stop rules that can be certified, where the rows hold
    one thought at several budgets."""
    work = {
        "input_tokens": pl.col("prompt_tokens") + pl.col("forced_tokens"),
        "cached_tokens": pl.lit(0),
        "output_tokens": pl.col("think_tokens") + pl.col("solution_tokens"),
        "turns": pl.lit(1),
    }
    rows = rows.with_columns(**work, model=pl.lit(_MODEL), cut=is_cut())
    found = [rows.select(_READ)]
    if with_rules:
        found += _of_rules(rows)
    tokens = pl.col("input_tokens") + pl.col("output_tokens") - pl.col("prompt_tokens")
    return pl.concat(found, how="vertical_relaxed").with_columns(tokens=tokens.cast(pl.Float64))


def _of_rules(rows: pl.DataFrame) -> list[pl.DataFrame]:
    named = {"model": pl.lit(_MODEL), "cut": pl.lit(False)}
    with suppress(NotComparable):
        thoughts = read_thoughts(rows)
        return [stopped_rows(thoughts, rule).with_columns(**named).select(_READ) for rule in certifiable(thoughts)]
    return []


_READ = [*CELL, "problem", "sample", "score", "cut", "prompt_tokens", *WORK]


def _is_served(cell: _Cell) -> bool:
    return split_variant(cell[0])[0] == SERVED


def _problems(rows: pl.DataFrame) -> tuple[pl.DataFrame, dict[_Cell, pl.DataFrame]]:
    """The problem table of budgets and rules that have all problems, and of responses without a limit if they have, of
    all benchmarks as one; and the sides that may be levels."""
    whole = with_looks(problem_table(rows, ["score", "tokens", *WORK], CELL), rows)
    name = pl.concat_str("benchmark", "problem", separator="/")
    problems = whole.with_columns(asks="problem", of="benchmark", problem=name, benchmark=pl.lit(_ALL))
    limited = comparable(problems.filter(pl.col("strategy") != FREE), *_CELL)
    sides = {side.select(_CELL).row(0): side for side in limited}
    there = next(iter(sides.values())).select("problem")
    free = problems.filter(strategy=FREE).join(there, on="problem", how="semi")
    return pl.concat([*sides.values(), *([free] if free.height == there.height else [])]), sides


def _on_each(problems: pl.DataFrame, margin: float, level: float) -> pl.DataFrame:
    """`certificates` on every benchmark, for all of them together. That it is within the margin on one of them may be
    false as often as is allowed: it is only promised where it holds on the others as well (Berger 1982)."""
    by_benchmark = problems.with_columns(benchmark="of", problem="asks")
    found = certificates(by_benchmark, margin, level * problems["of"].n_unique(), tried=())
    needed = pl.col("problems_needed")  # Null where no number would do on one of them.
    known = pl.when(needed.null_count() == 0).then(needed)
    worst = found.group_by("model", *_CELL).agg(pl.col("within").max(), known.max())
    return worst.with_columns(benchmark=pl.lit(_ALL))


def _advice(problems: pl.DataFrame, margin: float, level: float) -> pl.DataFrame:
    return budget_advice(problems, margin=margin, certified=_on_each(problems, margin, level))


def _ruled(advice: pl.DataFrame, problems: pl.DataFrame, guess: float) -> dict[str, Any] | Reason:
    """The choice of the rule on a problem table."""
    if FREE not in problems["strategy"]:
        return Reason.UNMEASURED
    return choose_budgets(advice, problems, {_ALL: guess})[_MODEL, _ALL]


def _chosen(problems: pl.DataFrame, rule: dict[str, Any] | Reason) -> tuple[dict[Effort, _Cell], int]:
    """What becomes levels, cheapest first, and how many budgets are on the frontier. All cells have equal problems."""
    sides = problems.filter(pl.col("strategy") != FREE).partition_by(_CELL, as_dict=True)
    accuracy = {cell: mean_score(side).mean for cell, side in sides.items()}
    tokens = {cell: mean_tokens(side, "tokens").mean for cell, side in sides.items()}
    served = [[*cell, accuracy[cell], tokens[cell]] for cell in sides if _is_served(cell)]
    cells = pl.DataFrame(served, [*_CELL, "accuracy", "tokens"], orient="row").sort("tokens", *BUDGET)
    frontier = cells.filter(on_frontier("tokens", "accuracy")).select(_CELL).rows()
    high = frontier[-1] if isinstance(rule, Reason) else tuple(rule[name] for name in _CELL)
    cheaper = [cell for cell in frontier if tokens[cell] < tokens[high]]
    lowest = accuracy[(*cheaper, high)[0]]
    chosen: dict[_Cell, Effort] = {}
    for effort, share in _SHARES.items():
        least = lowest + share * (accuracy[high] - lowest)
        chosen[next((cell for cell in cheaper if accuracy[cell] >= least), high)] = effort
    chosen[high] = "high"
    return {effort: cell for cell, effort in chosen.items()}, len(frontier)


def _cross_fitted(
    problems: pl.DataFrame,
    sides: dict[_Cell, pl.DataFrame],
    chosen: dict[Effort, _Cell],
    of_half: Callable[[pl.DataFrame], dict[Effort, _Cell]],
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
            of_half(problems.join(half, on="problem", how="semi")) if half.height else chosen
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


def _responses(side: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    there = side.select(*_CELL, benchmark="of", problem="asks")
    return rows.join(there, on=there.columns, how="semi", nulls_equal=True)


def _point(side: pl.DataFrame, rows: pl.DataFrame) -> Point:
    _, think, _ = side.select(_CELL).row(0)
    assert think is not None, "both phases are limited"
    tokens = round(mean_tokens(side, "tokens").mean, 6)
    return Point(think, round(mean_score(side).mean, 6), tokens, p95(_responses(side, rows), "tokens").mean)


def _level(side: pl.DataFrame, rows: pl.DataFrame, accuracy: Estimate, gain: Gain | None) -> Level:
    strategy, think, solution = side.select(_CELL).row(0)
    assert solution is not None, "levels are chosen of limited budgets"
    served, closing, effort = split_variant(strategy)
    return Level(
        think=think,
        solution=solution,
        rule=None if served == SERVED else strategy,
        closing=None if closing == BARE else closing,
        effort=effort,
        accuracy=round(accuracy.mean, 6),
        accuracy_low=round(accuracy.low, 6),
        accuracy_high=round(accuracy.high, 6),
        gain=gain,
        num_problems=accuracy.num_problems,
        num_samples=int(side["num_samples"].min()),  # type: ignore[arg-type]
        tokens_mean=round(mean_tokens(side, "tokens").mean, 6),
        tokens_p95=p95(_responses(side, rows), "tokens").mean,
    )
