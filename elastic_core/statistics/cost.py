"""The cost of a response: its work, and a price or a time for each kind of work; the frontier of accuracy and cost, and
the most accurate cell under a limit of cost, as measured.

An engine decodes every sampled token, reads the prompt and forced tokens, and begins to decode once per turn: at the
start, and after each text that was forced in between. Tokens before a later turn are cached input.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import floor, log10

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.budgets import comparable, differences_together
from elastic_core.statistics.estimates import (
    CLUSTER,
    column_of,
    groups_of,
    mean_tokens,
    problem_table,
    seed_keys,
    unit_values,
    units,
)
from elastic_core.statistics.intervals import Estimate, effective_size, share_interval
from elastic_core.trajectory import CELL

_PLACE = ["model", "benchmark"]

WORK = ("input_tokens", "cached_tokens", "output_tokens", "turns")  # Columns of `with_work`.


@dataclass(frozen=True)
class CostModel:
    """The cost of one token of each kind and of one more turn, in any unit: tokens, money for a million of them,
    seconds. The default is the number of tokens that an engine processes: the prompt and forced tokens once, and every
    sampled one."""

    input: float = 1.0
    cached_input: float = 0.0
    output: float = 1.0
    turn: float = 0.0

    def __post_init__(self) -> None:
        if min(self.prices) < 0 or not max(self.prices) > 0:
            raise ValueError(f"costs are {self}; expected none below 0, and one above")

    @property
    def prices(self) -> tuple[float, ...]:
        """Prices in the order of `WORK`."""
        return self.input, self.cached_input, self.output, self.turn

    def times(self, factor: float) -> CostModel:
        """The same costs in another unit."""
        return CostModel(*(factor * cost for cost in self.prices))

    def of(self) -> pl.Expr:
        """The cost of a row, from the columns `WORK`."""
        return pl.sum_horizontal(cost * pl.col(name) for name, cost in zip(WORK, self.prices, strict=True))

    def of_problems(self, problems: pl.DataFrame) -> np.ndarray:
        """Costs of a problem table with the columns `WORK`, shape (seeds, units); see `units`."""
        costs = zip(WORK, self.prices, strict=True)
        return np.sum([cost * units(problems, name) for name, cost in costs], axis=0)


TOKENS = CostModel()


def p95(rows: pl.DataFrame, column: str) -> Estimate:
    """The 95th percentile of a column over the rows of one cell. Its interval holds the values at which the interval of
    the share of rows below (`share_interval`, at the effective size at the percentile, over units) holds 0.95 (Woodruff
    1952). The upper bound is infinite where rows are worth fewer than 72 independent ones (0.95^72 = 2.5 %)."""
    groups, values = groups_of(rows), column_of(rows, column)
    count, ordered = len(values), np.sort(values)
    point = float(ordered[math.ceil(0.95 * count) - 1])
    worth = effective_size(unit_values((values <= point).astype(float), groups), count)
    below = bisect_left(range(count), True, key=lambda number: share_interval(number / count, worth)[1] >= 0.95)
    above = bisect_left(range(count + 1), True, key=lambda number: share_interval(number / count, worth)[0] > 0.95)
    # With that many rows up to a value, the percentile may be as low, or anything up to the next row.
    low = float(ordered[below - 1]) if below else -np.inf
    high = float(ordered[above - 1]) if above <= count else np.inf
    return Estimate(point, min(point, low), max(point, high), rows["problem"].n_unique(), count)


def cell_costs(rows: pl.DataFrame, model: CostModel) -> pl.DataFrame:
    """Mean and p95 of the cost of a response of each cell, from rows with the columns `WORK`, and the 95 % interval of
    each as <name>_low and <name>_high (null where it is unbounded); with the columns `CELL`."""
    kept = [name for name in ("problem", CLUSTER) if name in rows.columns]
    priced = rows.select(*CELL, *kept, *seed_keys(rows), cost=model.of())
    found = []
    for key, cell in priced.partition_by(CELL, as_dict=True).items():
        mean, high = mean_tokens(problem_table(cell, ["cost"]), "cost"), p95(cell, "cost")
        found.append((*key, *mean.columns("mean").values(), *high.columns("p95").values()))
    values = [f"{name}{bound}" for name in ("mean", "p95") for bound in ("", "_low", "_high")]
    schema = {name: rows.schema[name] for name in CELL} | dict.fromkeys(values, pl.Float64())
    return pl.DataFrame(found, schema, orient="row")


def on_frontier(cost: str, value: str) -> pl.Expr:
    """Whether a cell is on the Pareto frontier: none has a higher value at most as dear, or the same value cheaper."""
    order = [pl.col(cost), -pl.col(value)]
    best_before = pl.col(value).sort_by(order).cum_max().shift(1)
    better = (pl.col(value).sort_by(order) > best_before).fill_null(True)
    return better.gather(pl.int_range(pl.len()).sort_by(order).arg_sort())


def best_under(problems: pl.DataFrame, models: Mapping[str, CostModel]) -> pl.DataFrame:
    """The most accurate cell as measured with a mean cost of at most a limit, for limits in round numbers, by model and
    benchmark; no advice, as the best of many is partly luck. The intervals of all pairs of a model's cells hold
    together (`simultaneous`): `num_close` counts the others under the limit that are not shown to be less accurate.

    A row per limit at which another cell is best. Columns: CELL, limit, cost, accuracy, accuracy_low, accuracy_high
    (the cell's interval, which ignores the choice), num_others, num_close, num_problems, num_trajectories.
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
    ladder = [digit * 10.0**exponent for exponent in exponents for digit in (1, 1.5, 2, 3, 5, 7)]
    enough = next(number for number in ladder if number >= high)
    return [number for number in ladder if low <= number <= enough]


def with_work(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Rows of a trajectory table with the columns `WORK`: tokens of the prompt and of forced texts before sampled ones;
    cached tokens, those before the text forced in between, summed over all turns but the first; sampled tokens, dropped
    ones included; and turns, the number of times that decoding began. A probe of a stop rule is a turn, and the thought
    that goes on after it is one more. A new request without a forced text in between is the same turn."""
    read, turns, before = (pl.col(_COUNTED).struct.field(name) for name in _TURNS.to_schema())
    sampled = pl.col("think_tokens") + pl.col("solution_tokens") + pl.col("dropped").list.len()
    probe = pl.element().struct
    fields = probe.field("at"), probe.field("forced"), probe.field("ids").list.len()
    at, written, length = (pl.col("probes").list.eval(each.cast(pl.Int64)).list.sum().fill_null(0) for each in fields)
    num_probes = pl.col("probes").list.len().fill_null(0).cast(pl.Int64)
    # Before the probe, and before the thought that goes on after it.
    probed = 2 * (num_probes * pl.col("prompt_tokens") + at)
    # A separate column, or polars would count anew for each expression; elementwise, so that it counts shard by shard
    # and the flags of all shards are never in memory.
    counted = pl.col("forced").map_batches(_turns, return_dtype=_TURNS, is_elementwise=True)
    return rows.with_columns(counted.alias(_COUNTED)).with_columns(
        (pl.col("prompt_tokens") + read + written).alias("input_tokens"),
        ((turns - 1).clip(0) * pl.col("prompt_tokens") + before + probed).alias("cached_tokens"),
        (sampled.cast(pl.Int64) + length - written).alias("output_tokens"),
        (turns + 2 * num_probes).alias("turns"),
    )


_COUNTED = "counted"
_TURNS = pl.Struct({"read": pl.Int64, "turns": pl.Int64, "before": pl.Int64})


def _turns(forced: pl.Series) -> pl.Series:
    """Count, for each response, forced tokens before sampled ones, turns, and the tokens before each text that was
    forced in between, summed. Vectorised: a table has hundreds of millions of tokens, few of them forced."""
    offsets = np.append(0, forced.list.len().fill_null(0).cast(pl.Int64).cum_sum().to_numpy())
    places = np.flatnonzero(forced.explode(empty_as_null=False, keep_nulls=False).to_numpy())
    rows = np.searchsorted(offsets, places, side="right") - 1
    # Where a text begins: not right after a forced token of the same response.
    begins = np.append(True, (np.diff(places) > 1) | (np.diff(rows) > 0)) if len(places) else np.zeros(0, bool)
    ends = np.append(begins[1:], True) if len(places) else begins
    texts, first, behind = rows[begins], places[begins], places[ends] + 1
    before, inner = first - offsets[texts], behind < offsets[texts + 1]

    def summed(values: np.ndarray) -> np.ndarray:
        return np.bincount(texts, weights=values, minlength=len(offsets) - 1).astype(np.int64)

    # A text within a response divides it into one turn more; at its beginning or end it does not.
    turns = (np.diff(offsets) > 0) + summed(-1.0 + (before > 0) + inner)
    return pl.DataFrame(
        {"read": summed((behind - first) * inner), "turns": turns, "before": summed(before * inner)}
    ).to_struct()
