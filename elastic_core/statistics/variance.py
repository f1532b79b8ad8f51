"""What an interval is made of, and what would narrow it: more seeds, more problems or more samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import mean_score, score_difference
from elastic_core.statistics.estimates import Estimate, column_of, paired_columns, problem_table, seed_columns
from elastic_core.statistics.intervals import t_quantile
from elastic_core.statistics.seeds import by_seed, mean_squares, seed_keys
from elastic_core.trajectory import BUDGET


class Split(NamedTuple):
    """Of one estimate. What cannot be known is None: of seeds where there is one, of samples likewise.

    Attributes:
        num_seeds: of the side that has more.
        num_samples: of a problem, cell and seed.
        half_width: half of the estimate's 95 % interval.
        seeds, problems, samples: shares of the squared half width; they add up to 1. What is particular to a pair of
            problem and seed counts with problems.
        twice_seeds, twice_problems, twice_samples: the half width to expect with twice as many.
    """

    estimate: Estimate
    num_seeds: int
    num_samples: int
    half_width: float
    seeds: float | None
    problems: float
    samples: float | None
    twice_seeds: float | None
    twice_problems: float
    twice_samples: float | None


def variance_split(ours: pl.DataFrame, theirs: pl.DataFrame | None = None) -> Split | None:
    """The parts of the interval of a paired difference, averaged over the budgets that both sides have; without another
    side, of the accuracy averaged over budgets. None where there are fewer than two problems.

    The squared half width is that over problems plus that of seeds (`seeds.with_seeds`). Of the former, samples make
    the share that their variance within problems has in the variance of the mean of problems (moment estimates: Searle,
    Casella and McCulloch 1992, chapter 4); a sample is taken over all budgets at once, as these share its draws.

    Args:
        ours, theirs: rows of one model, benchmark and strategy each.
    """
    if theirs is not None:
        place = ["problem", *BUDGET]
        ours, theirs = (
            one.join(two, on=place, how="semi", nulls_equal=True) for one, two in ((ours, theirs), (theirs, ours))
        )
    sides = [side for side in (ours, theirs) if side is not None]
    if ours["problem"].n_unique() < 2:
        return None
    tables = [problem_table(side, ["score"]) for side in sides]
    values = seed_columns(tables[0], "score")
    if theirs is not None:
        values = np.subtract(*paired_columns(tables[0], tables[1], "score"))
    estimate, over_problems = (
        _estimate(each) for each in (tables, [each.drop(_LIST, strict=False) for each in tables])
    )
    added, half = estimate.seeds, (over_problems.high - over_problems.low) / 2
    samples = [_by_sample(side) for side in sides]
    return _split(values, estimate, half, added, [_sampling(side) for side in samples], _num_samples(samples))


_LIST = by_seed("score")


def _split(
    values: np.ndarray,
    estimate: Estimate,
    half: float,
    added: float,
    sampling: Sequence[float | None],
    num_samples: int,
) -> Split:
    """Args:
    values: shape (seeds, problems).
    half, added: the parts of the half width, over problems and of seeds.
    sampling: variance of each side's mean that is of samples.
    """
    num_seeds, num_problems = values.shape
    squared, total = half**2, half**2 + added**2
    between = float(values.mean(axis=0).var(ddof=1)) / num_problems
    known = [each for each in sampling if each is not None]
    of_samples = min(1.0, sum(known) / between) if between and len(known) == len(sampling) else None
    twice_seeds = None
    if num_seeds > 1:
        found = mean_squares(values)
        shrinking = min(1.0, found.rest / found.problems) if found.problems else 0.0
        fewer = added**2 / 2 * (t_quantile(2 * num_seeds - 1) / t_quantile(num_seeds - 1)) ** 2
        twice_seeds = float(np.sqrt(squared * (1 - shrinking / 2) + fewer))
    twice_problems = squared / 2 * (t_quantile(2 * num_problems - 1) / t_quantile(num_problems - 1)) ** 2 + added**2
    return Split(
        estimate,
        num_seeds,
        num_samples,
        float(np.sqrt(total)),
        added**2 / total if num_seeds > 1 else None,
        squared / total * (1 - (of_samples or 0.0)),
        None if of_samples is None else squared / total * of_samples,
        twice_seeds,
        float(np.sqrt(twice_problems)),
        None if of_samples is None else float(np.sqrt(squared * (1 - of_samples / 2) + added**2)),
    )


def _by_sample(rows: pl.DataFrame) -> pl.DataFrame:
    """A row per problem, sample and seed: its mean score over cells."""
    return rows.group_by(_keys(rows), maintain_order=True).agg(pl.col("score").mean())


def _keys(rows: pl.DataFrame) -> list[str]:
    return ["problem", *seed_keys(rows), "sample"]


def _estimate(tables: Sequence[pl.DataFrame]) -> Estimate:
    return mean_score(tables[0]) if len(tables) == 1 else score_difference(*tables)


def _sampling(samples: pl.DataFrame) -> float | None:
    """The variance of the mean of problems and seeds that is of samples; None where one sample tells nothing of it."""
    cells = samples.group_by(_keys(samples)[:-1]).agg(pl.col("score").var() / pl.len())
    return None if cells["score"].null_count() else float(column_of(cells, "score").mean()) / cells.height


def _num_samples(sides: Sequence[pl.DataFrame]) -> int:
    """The fewest of any problem and seed."""
    return min(int(side.group_by(_keys(side)[:-1]).len()["len"].min()) for side in sides)  # type: ignore[arg-type]
