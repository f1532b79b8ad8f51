"""Training again: what the seeds of a training add to an interval.

A model that was trained with several seeds was measured on the same problems each time: seeds and problems are crossed,
and both are drawn from many. With y[seed, problem], means over samples, the variance of the mean of all is at most
(variance between the seeds' means) / S + (variance between the problems' means) / P: both hold what samples and the
interaction of seed and problem add. It is the layout of readers and cases (Dorfman, Berbaum and Metz 1992; Obuchowski
and Rockette 1995).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.statistics.intervals import LEVEL, t_quantile, t_upper
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


def seed_error(values: np.ndarray) -> float:
    """The standard error of the mean as far as seeds make it: the deviation of the seeds' own means over √S. 0 for one
    seed, of which nothing can be known.

    Samples and the interaction of seed and problem are in it, and are not subtracted: with two or three seeds what is
    left after a subtraction is too often 0 by chance.

    Args:
        values: shape (seeds, problems).
    """
    num_seeds = len(values)
    return float(values.mean(axis=1).std(ddof=1) / np.sqrt(num_seeds)) if num_seeds > 1 else 0.0


def seed_half_widths(values: Sequence[np.ndarray], families: int = 1) -> list[float]:
    """Half of the 95 % interval of each mean as far as seeds make it, such that all of them hold together.

    For one mean it is Student's t with S - 1 degrees of freedom times `seed_error`. Of several, each is the larger of
    that and of t times the root of their mean squared error, with the degrees of freedom and the number of all of them
    (Šidák 1967): with two seeds some of many would agree by chance. It holds whether the means vary with the seed
    alike, as when one seed trains a better model at every budget, or each by itself.

    Args:
        values: of each mean, shape (seeds, problems).
        families: how many times as many means hold together with these.
    """
    errors = [seed_error(each) for each in values]
    seeded = [(error, len(each)) for error, each in zip(errors, values, strict=True) if len(each) > 1]
    if not seeded:
        return [0.0] * len(values)
    number = len(values) * families
    alone = {count: t_quantile(count - 1) for _, count in seeded}
    joint = t_upper(sum(count - 1 for _, count in seeded), (1 - (1 - LEVEL) ** (1 / number)) / 2)
    pooled = max(joint, *alone.values()) * float(np.sqrt(np.mean([error**2 for error, _ in seeded])))
    return [
        max(alone[len(each)] * error, pooled if number > 1 else 0.0) if len(each) > 1 else 0.0
        for error, each in zip(errors, values, strict=True)
    ]


def with_seeds(
    mean: float, interval: tuple[float, float], seeds: float, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[float, float]:
    """An interval over problems, widened by what seeds add: squares of half widths add up, to either side (MOVER: Zou
    and Donner 2008). It is never narrower than the interval over problems, which is what it is for one seed.

    Args:
        interval: over problems, of the mean over seeds.
        seeds: of `seed_half_widths`.
        bounds: of the mean.
    """
    if seeds == 0.0:
        return interval
    low, high = interval
    return (
        max(bounds[0], mean - float(np.hypot(mean - low, seeds))),
        min(bounds[1], mean + float(np.hypot(high - mean, seeds))),
    )
