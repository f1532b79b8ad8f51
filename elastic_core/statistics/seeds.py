"""Models that were trained with several seeds: their names, and how a table tells the trainings of one model apart."""

from __future__ import annotations

import re

import polars as pl

from elastic_core.trajectory import CELL

TRAIN_SEED = "train_seed"
"""Column of a table whose models stand for several trainings each: the training's seed; null where there is none."""

_SEED = re.compile(r"@(\d+)(?=>|$)")


def seed_name(model: str, seed: int) -> str:
    """The name of a model that was trained with this seed, where it was trained with several: "trained@2"."""
    return f"{model}@{seed}"


def without_seed(model: str) -> tuple[str, int | None]:
    """A model's name without the seed in it, and that seed: "trained@2>base" is ("trained>base", 2). A name without one
    is as it is."""
    seeds = _SEED.findall(model)
    return _SEED.sub("", model), int(seeds[0]) if seeds else None


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
