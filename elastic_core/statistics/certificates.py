"""How far below unlimited thinking a budget may be: a promise for each budget of a table, all of them together.

Candidates are fixed before the table is seen: a server's budgets, and stop rules of 2 and of 3 answers in a row, in
chains from the one that thinks longest down. A chain is tested up to its first failure (fixed sequence: Maurer, Hothorn
and Lehmacher 1995), every chain of every model and benchmark at an equal share of the level (Bonferroni); together a
closed procedure (Bretz, Maurer, Brannath and Posch 2009). Any of the promises is false with a chance of at most the
level, however one picks among them, and however often one looks while problems or samples are added. Problems are
exchangeable with those of the benchmark. With several training seeds it is a promise of the recipe (Student's t of the
seeds' means, as in `with_seeds`), with one seed of that training alone.

Each test of a mean loss is by betting (Waudby-Smith and Ramdas 2023), which needs no normal distribution. A bettor at
fair odds bets against "the mean loss is the margin or more". If that is true, the capital 1/p is reached with a chance
of at most p (Ville's inequality), at any number of problems, if their order does not depend on losses. What differs:
bettors who each see only the first 1, 2, 4 … samples of a problem share the capital, so that one may look at any number
of samples as well.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.seeds import problem_digest
from elastic_core.statistics.budgets import comparable
from elastic_core.statistics.estimates import paired_scores, seed_keys, unit_losses
from elastic_core.statistics.intervals import LEVEL, t_upper
from elastic_core.stop_rule import ADAPTIVE, StopRule
from elastic_core.strategies import FREE, SERVED
from elastic_core.strategies.variants import is_variant
from elastic_core.trajectory import BUDGET, CELL

MARGIN = 0.02  # How far below unconstrained accuracy a budget may be by default: two points.
MARGINS = (0.01, 0.02, 0.05, 0.1)  # Of `cheapest_within`, in [0, 1].
SERVABLE = is_variant(SERVED) | pl.col("strategy").str.starts_with(ADAPTIVE)
"""Budgets and stop rules that a server keeps."""
_PLACE = ["model", "benchmark"]
WIDEST = 0.99  # Margin that a test is for: at 1 nothing is promised.
TRIED = (*np.arange(1, 20) / 200, *np.arange(4, 21) / 40)  # Margins: half a point apart, from 10 points on 2.5.
_UNLIMITED = 2**30  # More tokens than any budget has.
# Every bet that does not know later losses is valid; these decide how many problems it takes.
_STAKE = 0.85  # Of the most that can be bet without being ruined by a single problem.
_HORIZON = 512  # Problems that the bets aim at, or as many as there are by then.
_PRIOR_PROBLEMS, _PRIOR_VARIANCE = 4, 0.01  # Known before the first problem: 4 without loss, with this variance.


def with_looks(problems: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """A problem table by cells with what promises rest on: `looks`, the mean scores of the first 1, 2, 4 … samples;
    `cut`, the share of responses that a limit ended; `cap`, the tokens of the longest of these, null without.

    Args:
        rows: that the table is of, with score, `cut` and output_tokens.
    """
    most = int(problems["num_samples"].max() or 1)  # type: ignore[arg-type]
    first = {
        str(number): pl.when(pl.len() >= number).then(pl.col("score").sort_by("sample").head(number).mean())
        for number in (2**power for power in range(most.bit_length()))
    }
    known = rows.filter(SERVABLE | pl.col("strategy").eq(FREE))
    found = known.group_by(*CELL, *seed_keys(rows), "problem").agg(
        **first, cut=pl.col("cut").mean(), cap=pl.col("output_tokens").filter(pl.col("cut")).max()
    )
    if seed_keys(rows):
        found = found.group_by(*CELL, "problem").agg(pl.col(*first, "cut").mean(), pl.col("cap").max())
    looks = found.select(*CELL, "problem", "cut", "cap", looks=pl.concat_list(*first).list.drop_nulls())
    return problems.join(looks, on=[*CELL, "problem"], nulls_equal=True, maintain_order="left")


class Candidate(NamedTuple):
    """A budget or stop rule and the responses without a limit to hold it against, on the same problems; the chain that
    it is tested in, and its place there: the one that thinks longest has the largest."""

    side: pl.DataFrame
    free: pl.DataFrame
    chain: str
    place: int

    @property
    def key(self) -> tuple[object, ...]:
        return self.side.select(CELL).row(0)


def candidates(problems: pl.DataFrame) -> list[list[Candidate]]:
    """Those of each model and benchmark that has responses without a limit, from a problem table by cells."""
    found = []
    for cells in problems.filter(SERVABLE | pl.col("strategy").eq(FREE)).partition_by(_PLACE):
        sides = comparable(cells, *CELL)
        free = next((side for side in sides if side["strategy"][0] == FREE), None)
        if free is not None and len(sides) > 1:
            found.append([Candidate(side, free, *_chain(side)) for side in sides if side is not free])
    return found


def _chain(side: pl.DataFrame) -> tuple[str, int]:
    strategy, think, solution = (side[name][0] for name in ("strategy", *BUDGET))
    if strategy.startswith(ADAPTIVE) and think is None:
        rule = StopRule.parse(strategy)
        return f"{ADAPTIVE} {rule.agree}", next(rule.rungs(None))
    think, solution = (_UNLIMITED if limit is None else limit for limit in (think, solution))
    return strategy, (think + solution) * _UNLIMITED + think


def _of_each(found: list[list[Candidate]], level: float) -> float:
    """The level of each chain: those of all models and benchmarks share it."""
    return level / max(1, sum(len({each.chain for each in there}) for there in found))


def certificates(
    problems: pl.DataFrame, margin: float = MARGIN, level: float = LEVEL, tried: Sequence[float] = TRIED
) -> pl.DataFrame:
    """How far below responses without a limit each candidate of a problem table `with_looks` is at most, of `margin`
    and the margins `tried`.

    All rows hold together but for a chance of `level`. Columns: `CELL`; within, in (0, 1], of accuracy, 1 where nothing
    is shown; problems_needed, about how many problems like these would show that it is within `margin` (null: no number
    would). One row per candidate.
    """
    found = candidates(problems)
    level = _of_each(found, level)
    margins = np.unique([*tried, min(margin, WIDEST)])
    shown = [_shown(there, margins, margin, level) for there in found]
    schema = {name: problems.schema[name] for name in CELL} | {"within": pl.Float64, "problems_needed": pl.Float64}
    return pl.concat([pl.DataFrame(schema=schema), *(pl.DataFrame(rows, schema, orient="row") for rows in shown)])


def least_problems(problems: pl.DataFrame, margin: float, level: float) -> int:
    """Number of problems of a benchmark, without any loss, that a certificate takes, for a table `with_looks`."""
    looks: int = problems["looks"].list.len().min()  # type: ignore[assignment]
    return problems_at_least(min(margin, WIDEST), _of_each(candidates(problems), level), looks)


def _shown(there: list[Candidate], margins: np.ndarray, margin: float, level: float) -> list[tuple[object, ...]]:
    """Rows of `certificates`, of one model and benchmark, each test at `level`."""
    free = there[0].free
    sides = [each["looks"] for each in (free, *(one.side for one in there))]
    num_looks = min(len(scores) for side in sides for scores in side)
    without, *limited = (np.array(side.list.head(num_looks).to_list()).T for side in sides)
    losses, weights, names = unit_losses(without - np.array(limited), free)
    order = np.argsort([problem_digest(free["benchmark"][0], str(name)) for name in names])
    capital = largest_capital(losses[..., order], margins, level, weights[order])
    passed = np.logical_and.accumulate((capital >= -np.log(level))[:, ::-1], axis=1)[:, ::-1]
    found: list[tuple[object, ...]] = []
    reached: dict[str, tuple[float, float]] = {}
    for each, grown, enough in sorted(zip(there, capital, passed, strict=True), key=lambda one: -one[0].place):
        values, _ = paired_scores(each.free, each.side)
        loss, seeds = float(values.mean()), _of_seeds(values, level)
        bound = float(margins[enough.argmax()]) if enough.any() else 1.0
        bound = min(1.0, loss + float(np.hypot(max(0.0, bound - loss), seeds))) if seeds else bound
        # The margin that problems alone must be within, so that it is kept with seeds.
        room = (margin - loss) ** 2 - seeds**2 if margin > loss else -1.0
        rate = grown[max(0, np.searchsorted(margins, loss + room**0.5 + 1e-9) - 1)] if room > 0 else 0.0
        needed = np.ceil(free.height * -np.log(level) / rate) if rate > 0 else np.inf
        before = reached.get(each.chain, (0.0, 0.0))
        reached[each.chain] = bound, needed = max(bound, before[0]), max(needed, before[1])
        found.append((*each.key, bound, needed if np.isfinite(needed) else None))
    return found


def _of_seeds(values: np.ndarray, level: float) -> float:
    """What training seeds add to a one-sided bound of the mean of values of shape (seeds, problems)."""
    if len(values) < 2:
        return 0.0
    return t_upper(len(values) - 1, level) * float(values.mean(axis=1).std(ddof=1)) / len(values) ** 0.5


def largest_capital(
    losses: np.ndarray, margins: np.ndarray, chance: float, weights: np.ndarray | None = None
) -> np.ndarray:
    """The largest capital of a bettor who begins with 1, with the bets of the paper's equation 17.

    Args:
        losses: in [-1, 1], shape (…, looks, problems): of each problem its mean loss over the first 1, 2, 4 … samples,
            in an order of the problems that does not depend on the losses.
        margins: in (0, 1), shape (margins,).
        chance: that the bets aim at: 1 over the capital that they are to reach.
        weights: of each problem, in (0, 1], shape (problems,): its part of the largest group, where losses are means
            of groups of problems. None where all weigh the same.

    Returns:
        Logarithms of the capital, 0 or more, shape (…, margins).
    """
    values = np.moveaxis((1 + losses) / 2, -1, 0)[..., None, :]  # problems, …, margins, looks
    bound = (1 + margins)[:, None] / 2
    most_bet = _STAKE / (1 - bound)
    capital = np.broadcast_to(np.log(_shares(losses.shape[-2])), np.broadcast_shapes(values.shape[1:], bound.shape))
    largest = np.zeros(capital.shape[:-1])
    seen, total, squares = float(_PRIOR_PROBLEMS), _PRIOR_PROBLEMS / 2, _PRIOR_PROBLEMS * _PRIOR_VARIANCE
    for value, weight in zip(values, np.ones(len(values)) if weights is None else weights, strict=True):
        bet = np.minimum(most_bet, np.sqrt(-2 * np.log(chance) / (max(seen, _HORIZON) * squares / seen)))
        capital = capital + np.log1p(bet * weight * (bound - value))
        largest = np.maximum(largest, np.logaddexp.reduce(capital, axis=-1))
        seen, total = seen + weight, total + weight * value
        squares = squares + weight * (value - total / seen) ** 2
    return largest


def _shares(looks: int) -> np.ndarray:
    """Parts of the capital for the bettors who see 1, 2, 4 … samples: 1/2, 1/6, 1/12 …, which add up to less than 1."""
    place = np.arange(1, looks + 1)
    return 1 / (place * (place + 1))


def problems_at_least(margin: float, chance: float, looks: int = 1) -> int:
    """Number of problems without any loss that show at this level that the mean loss is below `margin`."""

    def capital(problems: int) -> float:
        return float(largest_capital(np.zeros((looks, problems)), np.array([margin]), chance)[0])

    most = 64
    while capital(most) < -np.log(chance):
        most *= 2
    return bisect_left(range(most + 1), -np.log(chance), lo=1, key=capital)
