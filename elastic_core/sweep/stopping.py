"""Sampling until intervals are narrow: how wide they are, how narrow they can become, how many samples come next.

Stopping when an interval is narrow looks at the data. Its effect on coverage is small, because the stop depends on the
width alone and all cells have the same number of samples; it is recorded with the sweep.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.budget import Budget
from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.estimates import column_of, problem_table
from elastic_core.sweep.grid import Cell, Samples
from elastic_core.trajectory import CELL

GROWTH = 1.5  # Factor from one round's samples to the next one's.

_MANY_PROBLEMS = 10_000  # Where `problems_needed` ends its search.


class Widest(NamedTuple):
    """The cell with the widest interval, in words, and half its 95 % interval in points (percent)."""

    cell: str
    half_width: float


def widest(rows: pl.LazyFrame, cells: Iterable[Cell], num_samples: int | None = None) -> Widest:
    """The half-width is that of avg@k, the larger side of the interval. A ValueError on no rows of these cells.

    Args:
        rows: of a trajectory table; only those of the cells are read into memory.
        num_samples: project to this number per problem. The projection replaces what samples within a problem
            contribute to the variance between the problems' means; a problem with one sample contributes nothing.
    """
    schema = rows.collect_schema()
    asked = pl.DataFrame([cell.key for cell in cells], {name: schema[name] for name in CELL}, orient="row")
    mine = rows.join(asked.lazy(), on=CELL, how="semi", nulls_equal=True).collect()
    if mine.is_empty():
        raise ValueError("no rows, so no interval; expected at least one finished cell")
    found = []
    for rows_of_cell in mine.partition_by(CELL):
        model, benchmark, strategy, think, solution = rows_of_cell.select(CELL).row(0)
        problems = problem_table(rows_of_cell, ["score"])
        if num_samples is not None:
            # Means of problems with the variance that is expected at this number of samples.
            spread = rows_of_cell.group_by("problem").agg(within=pl.col("score").var().fill_null(0.0), now=pl.len())
            within, now = spread["within"].to_numpy(), spread["now"].to_numpy()
            means = column_of(problems, "score")
            total = float(means.var(ddof=1)) if len(means) > 1 else 0.0
            between = max(0.0, total - float((within / now).mean()))
            then = between + float((within / np.maximum(now, num_samples)).mean())
            share = math.sqrt(min(1.0, then / total)) if total else 1.0
            score = means.mean() + share * (means - means.mean())
            problems = problems.with_columns(score=score, num_samples=pl.max_horizontal("num_samples", num_samples))
        found.append(Widest(str(Cell(model, benchmark, strategy, Budget(think, solution))), _half_width(problems)))
    return max(found, key=lambda each: each.half_width)


def next_samples(now: Samples, cap: int) -> Samples:
    """Samples per problem and cell of the next round."""
    if isinstance(now, int):
        return min(cap, math.ceil(now * GROWTH))
    return {benchmark: min(cap, math.ceil(number * GROWTH)) for benchmark, number in now.items()}


class Reach(NamedTuple):
    """Half the narrowest 95 % interval of avg@k, in points (percent), at a number of problems and samples. `alike` is a
    lower bound for any cell: problems of equal difficulty, at the accuracy where the interval is narrowest; differences
    between problems only widen it. `certain` is of a cell that is all wrong or all right."""

    alike: float
    certain: float


@lru_cache(maxsize=1024)
def reach(num_problems: int, num_samples: int) -> Reach:
    """The limit that more samples cannot pass, from `elastic_core.statistics.accuracy.mean_score` alone."""
    # Accuracies above one half mirror those below it.
    widths = [
        _half_width(pl.DataFrame({"score": np.full(num_problems, share), "num_samples": np.int64(num_samples)}))
        for share in np.linspace(0, 0.5, 101)
    ]
    return Reach(min(widths), widths[0])


def problems_needed(half_width: float, num_samples: int) -> Reach:
    """The fewest problems at which `reach` is as narrow as this, as integers; infinite for more than 10,000."""
    counts = range(1, _MANY_PROBLEMS + 1)

    def fewest(kind: int) -> float:
        place = bisect_left(counts, True, key=lambda count: reach(count, num_samples)[kind] <= half_width)
        return counts[place] if place < len(counts) else math.inf

    return Reach(fewest(0), fewest(1))


def beyond_reach(half_width: float, num_problems: Mapping[str, int], num_samples: int) -> list[str]:
    """A sentence for each benchmark with too few problems for intervals of this half-width, in points (percent)."""
    found = []
    for benchmark, count in num_problems.items():
        best = reach(count, num_samples)
        if best.alike > half_width:
            needed = problems_needed(half_width, num_samples)
            found.append(
                f"{benchmark} has {count} problems, whose intervals cannot be narrower than ±{best.alike:.1f} points "
                f"with {num_samples} samples each, and are ±{best.certain:.1f} where all are wrong or all right; "
                f"±{half_width:g} takes {_count(needed.alike)} problems at least, there {_count(needed.certain)}"
            )
    return found


def projection(then: Widest, num_samples: int) -> str:
    return (
        f"Projected from how far apart the problems are so far: with {num_samples} samples of each the widest interval "
        f"is about ±{then.half_width:.1f} points, {then.cell}; only more problems would make it much narrower."
    )


def _count(problems: float) -> str:
    return f"{problems:,}" if problems < math.inf else f"more than {_MANY_PROBLEMS:,}"


def _half_width(problems: pl.DataFrame) -> float:
    accuracy = mean_score(problems)
    return 100 * max(accuracy.mean - accuracy.low, accuracy.high - accuracy.mean)
