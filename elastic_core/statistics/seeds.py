"""Training again: what the seeds of a training add to an interval.

A model that was trained with several seeds was measured on the same problems each time: seeds and problems are crossed,
and both are drawn from many. With y[seed, problem], means over samples, the variance of the mean of all is
s²_seeds / S + (variance between the problems' means) / P, where the second part holds what samples and the interaction
of seed and problem add. It is the layout of readers and cases (Dorfman, Berbaum and Metz 1992; Obuchowski and Rockette
1995), and a two-way model of variance components (Searle, Casella and McCulloch 1992, chapter 5).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.sweep.grid import without_seed
from elastic_core.trajectory import CELL

TRAIN_SEED = "train_seed"
"""Column of a table whose models stand for several trainings each: the training's seed; null where there is none."""


def by_seed(column: str) -> str:
    """The column of a problem table that lists a problem's means of `column`, one per seed."""
    return f"{column}_by_seed"


def seed_keys(rows: pl.DataFrame) -> list[str]:
    """`TRAIN_SEED` where rows tell seeds apart by it, else nothing."""
    return [TRAIN_SEED] if TRAIN_SEED in rows.columns else []


def seeds_as_one(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of a trajectory table in which NAME@1, NAME@2 and so on are one model NAME, told apart by `TRAIN_SEED`; as
    they are where no model has a seed in its name.

    A seed counts once its sweep is as far as that of the fullest one: on half of the problems it would be another
    model's easy or hard half.
    """
    named = {name: without_seed(name) for name in rows["model"].unique()}
    if all(seed is None for _, seed in named.values()):
        return rows
    seeds = {name: seed for name, (_, seed) in named.items()}
    models = {name: model for name, (model, _) in named.items()}
    column = pl.col("model").replace_strict(seeds, return_dtype=pl.Int64)
    found = rows.with_columns(column.alias(TRAIN_SEED), model=pl.col("model").replace_strict(models))
    side = ["model", "benchmark"]
    size = pl.len().over(*side, TRAIN_SEED)
    found = found.filter(size == size.max().over(side))
    seen, expected = (pl.col(TRAIN_SEED).n_unique().over(*keys) for keys in ((*CELL, "problem"), side))
    return found.filter(seen == expected)


def in_every_seed(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of one cell, of problems that have some under every seed: a part of a cell may lack them under one."""
    if TRAIN_SEED not in rows.columns:
        return rows
    return rows.filter(pl.col(TRAIN_SEED).n_unique().over("problem") == pl.col(TRAIN_SEED).n_unique())


class MeanSquares(NamedTuple):
    """Of scores by seed and problem: between seeds, between problems, and what is left, which is that of samples and of
    seed with problem. Nan where there is one seed."""

    seeds: float
    problems: float
    rest: float


def mean_squares(values: np.ndarray) -> MeanSquares:
    """Two-way analysis of variance without replication.

    Args:
        values: shape (seeds, problems), two problems or more.
    """
    num_seeds, num_problems = values.shape
    of_seeds, of_problems, mean = values.mean(axis=1), values.mean(axis=0), values.mean()
    problems = num_seeds * float(((of_problems - mean) ** 2).sum()) / (num_problems - 1)
    if num_seeds < 2:
        return MeanSquares(np.nan, problems, np.nan)
    seeds = num_problems * float(((of_seeds - mean) ** 2).sum()) / (num_seeds - 1)
    rest = float(((values - of_seeds[:, None] - of_problems + mean) ** 2).sum())
    return MeanSquares(seeds, problems, rest / (num_seeds - 1) / (num_problems - 1))


def seed_half_width(values: np.ndarray) -> float:
    """Half of the 95 % interval of the mean, as far as seeds make it: Student's t with S - 1 degrees of freedom, times
    the root of s²_seeds / S. 0 for one seed, of which nothing can be known.

    s²_seeds is the moment estimate (MS_seeds - MS_rest) / P, at least 0.

    Args:
        values: shape (seeds, problems).
    """
    from scipy.special import stdtrit

    num_seeds, num_problems = values.shape
    if num_seeds < 2:
        return 0.0
    if num_problems < 2:
        variance = float(values.var(axis=0, ddof=1)[0])
    else:
        found = mean_squares(values)
        variance = max(0.0, found.seeds - found.rest) / num_problems
    return float(stdtrit(num_seeds - 1, 0.975) * np.sqrt(variance / num_seeds))


def with_seeds(
    mean: float, interval: tuple[float, float], values: np.ndarray, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[float, float]:
    """An interval over problems, widened by what seeds add: squares of half widths add up, to either side (MOVER: Zou
    and Donner 2008). It is never narrower than the interval over problems, which is what it is for one seed.

    Coverage of a nominal 95 % interval, the least and the median of 32 settings simulated 1,000 times each (30 and 100
    problems of 8 samples, accuracy about 0.2 and 0.5, seeds that differ by a standard deviation of 0, 1, 3 and 10
    points, with and without an interaction of seed and problem); and the median half width over 1.96 standard errors,
    of the difference, where seeds do not differ and where they do by 10 points:

        seeds   accuracy       difference     over problems alone   width 0   width 10
            2   0.934  0.962   0.911  0.965          0.295  0.921      1.15       4.09
            3   0.950  0.962   0.931  0.963          0.341  0.926      1.15       1.73
            5   0.940  0.959   0.935  0.966          0.407  0.931      1.13       1.26

    One t quantile for both parts, at Satterthwaite's degrees of freedom, is narrower and covers 87.4 % at least with
    two seeds and 91.0 % with three: seeds that happen to agree hide the variance and raise the degrees of freedom at
    once. Two seeds that differ give a wide interval, as two values say little of their spread.

    Args:
        interval: over problems, of the mean over seeds.
        values: shape (seeds, problems).
        bounds: of the mean.
    """
    low, high = interval
    added = seed_half_width(values)
    if added == 0.0:
        return interval
    return max(bounds[0], mean - float(np.hypot(mean - low, added))), min(
        bounds[1], mean + float(np.hypot(high - mean, added))
    )
