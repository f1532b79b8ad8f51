"""Sequential sampling: how many samples a sweep still needs for its intervals to be as narrow as asked.

Stopping when an interval is narrow looks at the data; as the stop depends on the width alone and comes after all cells
have the same number of samples, its effect on coverage is small, and it is recorded with the sweep.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from elastic_core.statistics.accuracy import avg_at_k
from elastic_core.sweep.grid import Cell
from elastic_core.trajectory import CELL

GROWTH = 1.5
"""Factor from one round's samples to the next one's."""


class Widest(NamedTuple):
    """The cell whose interval is widest, in words, and half its 95 % interval in points (percent)."""

    cell: str
    half_width: float


def widest(rows: pl.LazyFrame, cells: Iterable[Cell]) -> Widest:
    """The half-width is that of avg@k, the larger side of the interval.

    Args:
        rows: of a trajectory table; only those of the cells are read into memory.
        cells: that are asked for. A table may hold others of earlier requests, which get no more samples.

    Raises:
        ValueError: on no rows of these cells.
    """
    schema = rows.collect_schema()
    asked = pl.DataFrame(
        [(cell.model, cell.benchmark, cell.strategy, cell.budget.think, cell.budget.solution) for cell in cells],
        {name: schema[name] for name in CELL},
        orient="row",
    )
    mine = rows.join(asked.lazy(), on=CELL, how="semi", nulls_equal=True).collect()
    if mine.is_empty():
        raise ValueError("no rows, so no interval; expected at least one finished cell")
    return max((_half_width(cell) for cell in mine.partition_by(CELL)), key=lambda found: found.half_width)


def next_samples(now: int, cap: int) -> int:
    """Samples per problem and cell of the next round."""
    return min(cap, math.ceil(now * GROWTH))


def _half_width(cell: pl.DataFrame) -> Widest:
    accuracy = avg_at_k(cell)
    model, benchmark, strategy, think, solution = cell.select(CELL).row(0)
    budget = "+".join("unlimited" if limit is None else str(limit) for limit in (think, solution))
    half = max(accuracy.mean - accuracy.low, accuracy.high - accuracy.mean)
    return Widest(f"{model} {benchmark} {strategy} {budget}", 100 * half)
