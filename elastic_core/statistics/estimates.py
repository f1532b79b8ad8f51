"""Rows to problems, and problems to an estimate with its 95 % interval; lengths.

A mean weighs each problem once (`problem_table`); its interval is computed from *units*, which are independent:
problems, or their groups (column `CLUSTER`, for problems of one template or contest).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from elastic_core.statistics.intervals import Estimate, seed_half_widths, t_quantile, with_seeds
from elastic_core.trajectory import CELL, ThinkFinish

DRAWS, SEED = 2000, 0
MIN_DEFINED = 0.95  # Least share of resamples in which a statistic must be defined for its interval to be bounded.
MIN_UNITS = 30  # Of fewer units the interval of `ratio_of_means` is unbounded: they may lack the longest.
_SKEWED_LEVEL = 0.02  # Nominal error of `ratio_of_means`; docs/coverage.md has its coverage.
CLUSTER = "cluster"
"""Column of a table whose problems come in groups: the group's name, null where a problem has none but itself."""

LADDER = ("model", "benchmark", "strategy", "solution_budget")
"""What the thinking budgets of a ladder have in common."""
TRAIN_SEED = "train_seed"
"""Column of a table whose models stand for several trainings each: the training's seed; null where there is none."""
_SEED_IN_NAME = re.compile(r"@(\d+)(?=>|$)")


def seed_name(model: str, seed: int) -> str:
    """The name of a model that was trained with this seed, where it was trained with several: "trained@2"."""
    return f"{model}@{seed}"


def without_seed(model: str) -> tuple[str, int | None]:
    """A model's name without the seed in it, and that seed, if any: "trained@2>base" is ("trained>base", 2)."""
    seeds = _SEED_IN_NAME.findall(model)
    return _SEED_IN_NAME.sub("", model), int(seeds[0]) if seeds else None


def by_seed(column: str) -> str:
    """The column of a problem table that lists a problem's means of `column`, one per seed."""
    return f"{column}_by_seed"


def seed_keys(rows: pl.DataFrame) -> list[str]:
    """`TRAIN_SEED` where rows tell seeds apart by it, else nothing."""
    return [TRAIN_SEED] if TRAIN_SEED in rows.columns else []


def seeds_as_one(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of a trajectory table in which NAME@1, NAME@2 and so on are one model NAME, with the seed in `TRAIN_SEED`. A
    seed counts once its sweep is as far as that of the fullest one: half of the problems may be the easy half."""
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


def problem_table(rows: pl.DataFrame, columns: Sequence[str], by: Sequence[str] = ()) -> pl.DataFrame:
    """One row per problem: `by`, `problem`, `num_samples`, and the mean over its samples of each of `columns`, sorted
    by `by` and problem. Problem ids are unique only within a benchmark, so rows of several need `by`. Rows that tell
    training seeds apart (`TRAIN_SEED`) have the mean over seeds, and one column more for each of `columns`, the list
    of the seeds' means (`by_seed`). The column `CLUSTER` is kept.

    ValueError on no rows, a missing value, or a score outside [0, 1].
    """
    if rows.is_empty():
        raise ValueError(f"mean {', '.join(columns)} of no rows; expected at least one sample")
    for column in columns:
        if rows[column].null_count():
            raise ValueError(f"{rows[column].null_count()} of {rows.height} rows have no {column}")
    if "score" in columns:
        check_scores(rows)
    seeded = TRAIN_SEED in rows.columns and TRAIN_SEED not in by
    keys = [*by, *([TRAIN_SEED] if seeded else []), "problem"]
    means = [*(pl.col(column).mean() for column in columns), *_clusters(rows)]
    table = rows.group_by(keys).agg(pl.len().cast(pl.Int64).alias("num_samples"), *means).sort(keys)
    return over_seeds(table, columns, [*by, "problem"]) if seeded else table


def over_seeds(table: pl.DataFrame, columns: Sequence[str], keys: Sequence[str]) -> pl.DataFrame:
    """Merge a problem table by `TRAIN_SEED` over all seeds, each weighing the same: see `problem_table`."""
    lists = [pl.col(column).alias(by_seed(column)) for column in columns]
    means = [*(pl.col(column).mean() for column in columns), *_clusters(table)]
    return table.sort(TRAIN_SEED).group_by(keys).agg(pl.col("num_samples").sum(), *means, *lists).sort(keys)


def pooled(cells: pl.DataFrame) -> pl.DataFrame:
    """Merge a problem table by cells to a row per problem: the mean of its scores over cells, and its number of
    samples."""
    place, score = ["problem"], by_seed("score")
    kept = pl.col("score").mean(), pl.col("num_samples").sum(), *_clusters(cells)
    table = cells.group_by(place).agg(*kept).sort(place)
    if score not in cells.columns:
        return table
    listed = cells.select(*place, score, seed=pl.int_ranges(pl.col(score).list.len())).explode(score, "seed")
    means = listed.group_by(*place, "seed").agg(pl.col(score).mean()).sort("seed")
    return table.join(means.group_by(place).agg(score), on=place, maintain_order="left")


def _clusters(rows: pl.DataFrame) -> list[pl.Expr]:
    """The column `CLUSTER` of each problem, where rows have it."""
    return [pl.col(CLUSTER).first()] if CLUSTER in rows.columns else []


def check_scores(rows: pl.DataFrame) -> None:
    """Raises ValueError where a score lies outside [0, 1]."""
    if not rows["score"].is_between(0, 1).all():
        raise ValueError("column score holds values outside [0, 1]")


def common_problems(a: pl.DataFrame, b: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both tables, on the problems that both have, which may be none."""
    return a.join(b, on="problem", how="semi"), b.join(a, on="problem", how="semi")


def paired_tables(a: pl.DataFrame, b: pl.DataFrame, columns: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The `problem_table` of each, on the problems that both have; ValueError without any, or as `problem_table`."""
    ours, theirs = common_problems(a, b)
    if ours.is_empty():
        raise ValueError(f"nothing to pair: {a.height} and {b.height} rows have no problem in common")
    return problem_table(ours, columns), problem_table(theirs, columns)


def column_of(problems: pl.DataFrame, column: str) -> np.ndarray:
    """A column of a problem table, shape (problems,)."""
    return problems[column].cast(pl.Float64).to_numpy()


def seed_columns(problems: pl.DataFrame, column: str) -> np.ndarray:
    """A column of a problem table by training seed, shape (seeds, problems); without seeds that of one."""
    if by_seed(column) not in problems.columns:
        return column_of(problems, column)[None]
    return np.array(problems[by_seed(column)].to_list(), dtype=float).T


def groups_of(rows: pl.DataFrame) -> np.ndarray:
    """The number of each row's unit, 0 and up, shape (rows,): its group, or its problem where it has none."""
    problem = pl.col("problem")
    if CLUSTER not in rows.columns:
        return rows.select(problem.rank("dense").cast(pl.Int64)).to_series().to_numpy() - 1
    alone = pl.when(pl.col(CLUSTER).is_null()).then(problem)
    return rows.select(pl.struct(CLUSTER, alone).rank("dense").cast(pl.Int64)).to_series().to_numpy() - 1


def num_units(problems: pl.DataFrame) -> int:
    """How many independent units the problems are: as many as there are, or as their groups."""
    return int(groups_of(problems).max(initial=-1)) + 1


def unit_values(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """A value per unit, shape (..., units), from those of its members, shape (..., members), with the same mean: the
    mean over members plus the sum of the group's departures from it.

    The variance between units is then the cluster-robust one of the mean (Liang and Zeger 1986), corrected after Bell
    and McCaffrey (2002): for C equal groups by C / (C - 1); for unequal ones departures grow with the size of their
    group, and as Student's t does with the fewer degrees of freedom.
    """
    sizes = np.bincount(groups)
    count = len(sizes)
    if count == len(groups):
        return values
    mean = values.mean(axis=-1, keepdims=True)
    order = np.argsort(groups, kind="stable")
    totals = np.add.reduceat((values - mean)[..., order], np.append(0, np.cumsum(sizes)[:-1]), axis=-1)
    departures = count / len(groups) * totals
    if count > 2 and np.ptp(sizes):
        shares = sizes / len(groups)
        others = shares**2 / (1 - shares)
        degrees = 1 / float((shares**2).sum() + others.sum() ** 2 - (others**2).sum())
        departures *= t_quantile(degrees) / t_quantile(count - 1) * np.sqrt((1 - 1 / count) / (1 - shares))
        departures -= departures.mean(axis=-1, keepdims=True)
    return mean + departures


def units(problems: pl.DataFrame, column: str) -> np.ndarray:
    """`seed_columns` by unit, shape (seeds, units), from which an interval over problems is computed."""
    values = seed_columns(problems, column)
    return unit_values(values, groups_of(problems)) if CLUSTER in problems.columns else values


def unit_losses(losses: np.ndarray, problems: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, pl.Series]:
    """Mean loss of each unit, shape (..., units), from losses by problem, shape (..., problems); the unit's weight, its
    size as a part of the largest; and its first problem."""
    groups = groups_of(problems)
    sizes, order = np.bincount(groups), np.argsort(groups, kind="stable")
    starts = np.append(0, np.cumsum(sizes)[:-1])
    sums = np.add.reduceat(losses[..., order], starts, axis=-1)
    return sums / sizes, sizes / sizes.max(), problems["problem"][order[starts]]


def paired_columns(a: pl.DataFrame, b: pl.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """`units` of both sides, of shapes that broadcast: seeds are paired in order, as many as both have."""
    first, second = units(a, column), units(b, column)
    if 1 in (len(first), len(second)):
        return first, second
    shared = min(len(first), len(second))
    return first[:shared], second[:shared]


def paired_scores(a: pl.DataFrame, b: pl.DataFrame) -> tuple[np.ndarray, int]:
    """Scores of `a` minus those of `b` on the same problems, shape (seeds, units), and the trajectories of both."""
    return np.subtract(*paired_columns(a, b, "score")), int(a["num_samples"].sum()) + int(b["num_samples"].sum())


def estimates_table(found: Sequence[Sequence[Any]], keys: Mapping[str, Any], values: Sequence[str]) -> pl.DataFrame:
    """A table of estimates, also of none: columns `keys`, of these types, then `values`, floats, then num_problems and
    num_trajectories. Sorted by `keys`, unlimited budgets last."""
    counts = dict.fromkeys(("num_problems", "num_trajectories"), pl.Int64())
    schema = {**keys, **dict.fromkeys(values, pl.Float64()), **counts}
    return pl.DataFrame(found, schema=schema, orient="row").sort(list(keys), nulls_last=True)


def bootstrap(
    values: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    extremes: np.ndarray,
    num_problems: int,
    num_trajectories: int,
) -> Estimate:
    """A statistic of the means over problems, with its percentile interval over resampled units.

    The cluster bootstrap (Efron 1979; Davison and Hinkley 1997, section 3.8) with a fixed seed and expanded percentiles
    (Hesterberg 2015). Two pseudo-problems are resampled with the others: `extremes`, rows that pull the statistic far
    down and far up (after Agresti and Coull 1998; Bonett and Price 2012), as no resample differs where all problems
    agree; they pull the interval to their middle by two problems in n + 2. The point estimate is of the problems alone,
    and always inside the interval.

    Args:
        values: shape (units, columns).
        statistic: from means over problems, shape (draws, columns), to one value per draw; nan where undefined.
        extremes: shape (2, columns).

    Raises:
        ValueError: when the statistic is undefined for the problems as they are. Where more than one resample in twenty
            leaves it undefined, the bounds are infinite.
    """
    point = float(statistic(values.mean(axis=0, keepdims=True))[0])
    if np.isnan(point):
        raise ValueError(f"the statistic is undefined for these {num_problems} problems")
    total = len(values) + 2
    # Divided last: sums of values in [0, 1] weighted with integers are never rounded above their bound.
    drawn = statistic(_counts(total) @ np.concatenate([values, extremes]) / total)
    defined = drawn[~np.isnan(drawn)]
    if len(defined) < MIN_DEFINED * DRAWS:
        return Estimate(point, -np.inf, np.inf, num_problems, num_trajectories)
    from scipy.special import ndtr

    count = len(values)
    outside = float(ndtr(-t_quantile(count - 1) * np.sqrt(count / (count - 1)))) if count > 1 else 0.0
    low, high = np.quantile(defined, (outside, 1 - outside))
    return Estimate(point, min(point, float(low)), max(point, float(high)), num_problems, num_trajectories)


@lru_cache(maxsize=4)
def _counts(num_problems: int) -> np.ndarray:
    """How often each problem is in each resample, shape (draws, problems): sums of resamples are one matrix product."""
    drawn = np.random.default_rng(SEED).integers(num_problems, size=(DRAWS, num_problems))
    places = drawn + num_problems * np.arange(DRAWS)[:, None]
    return np.bincount(places.ravel(), minlength=DRAWS * num_problems).reshape(DRAWS, num_problems).astype(float)


def sampled_tokens() -> pl.Expr:
    """Tokens that the model sampled in a row: thinking and solution."""
    return pl.col("think_tokens") + pl.col("solution_tokens")


def forced_close() -> pl.Expr:
    """Whether the pipeline wrote a row's think-end: the budget was spent, or the model stopped inside its thought."""
    return pl.col("think_finish").is_in([ThinkFinish.FORCED, ThinkFinish.END_OF_TEXT]) & (pl.col("forced_tokens") > 0)


def length_error(rows: pl.DataFrame) -> Estimate:
    """Sampled tokens minus the n = t + s that L1's prompts request (Aggarwal and Welleck 2025), mean over problems with
    its interval (`ratio_of_means`). ValueError on no rows, a missing count, or an unlimited budget."""
    asked = pl.col("think_budget") + pl.col("solution_budget")
    problems = problem_table(rows.with_columns(error=sampled_tokens() - asked), ["error"])
    errors = units(problems, "error")
    return Estimate(*ratio_of_means(errors, np.ones_like(errors)), problems.height, rows.height)


def mean_tokens(problems: pl.DataFrame, column: str) -> Estimate:
    """Mean over problems of a count, 0 or more, with its interval (`ratio_of_means`), from one cell's
    `problem_table`. The interval has no width where two problems or more agree."""
    values = units(problems, column)
    mean, low, high = ratio_of_means(values, np.ones_like(values))
    return Estimate(mean, max(low, 0.0), high, problems.height, int(problems["num_samples"].sum()))


def paired_ratio(a: pl.DataFrame, b: pl.DataFrame, column: str) -> Estimate:
    """Mean of `column` in `a` over its mean in `b`, over the problems both have; for lengths in tokens. ValueError when
    there are none, or the mean in `b` is zero."""
    tables = paired_tables(a, b, [column])
    top, bottom = paired_columns(*tables, column)
    if bottom.mean() == 0:
        raise ValueError(f"the mean {column} to divide by is zero")
    trajectories = sum(int(problems["num_samples"].sum()) for problems in tables)
    return Estimate(*ratio_of_means(top, bottom), tables[0].height, trajectories)


def ratio_of_means(top: np.ndarray, bottom: np.ndarray) -> tuple[float, float, float]:
    """The ratio of two means over the same units, as of `paired_columns`, with its 95 % interval (`with_seeds`
    included); of a mean alone where `bottom` is 1. The mean to divide by is not zero.

    Lengths are skewed, so the interval is the studentised bootstrap of units (Efron 1981; Davison and Hinkley 1997,
    section 5.2) with the standard error of the linearised ratio (Cochran 1977, chapter 6), nowhere narrower than
    Student's t. What differs: the two units that depart furthest down and up count twice, as more like them may exist,
    and its nominal level is 98 %. Of fewer than `MIN_UNITS` it is unbounded; where units have one ratio it has no
    width.
    """
    one, other = (each.mean(axis=0) for each in np.broadcast_arrays(top, bottom))
    ratio, count = float(one.mean() / other.mean()), len(one)
    linear = (one - ratio * other) / other.mean()
    (added,) = seed_half_widths([(top - ratio * bottom) / other.mean()])
    if count > 1 and not np.ptp(linear) > 1e-12 * max(1.0, abs(ratio)):
        return ratio, *with_seeds(ratio, (ratio, ratio), added)
    if count < MIN_UNITS:
        return ratio, -np.inf, np.inf
    twice = [int(linear.argmin()), int(linear.argmax())]
    one, other = (np.append(each, each[twice]) for each in (one, other))
    total = count + 2
    products = np.stack([one, other, one * one, one * other, other * other], axis=1)
    (error,), middle = _linearised(products.mean(axis=0, keepdims=True), total)
    errors, ratios = _linearised(_counts(total)[: DRAWS // 2] @ products / total, total)
    with np.errstate(divide="ignore", invalid="ignore"):
        studentised = (ratios - middle) / np.where(errors > 1e-9 * error, errors, 0.0)
    low, high = np.nanquantile(studentised, (_SKEWED_LEVEL / 2, 1 - _SKEWED_LEVEL / 2), method="nearest")
    error = max(float(error), float(linear.std(ddof=1) / np.sqrt(count)))
    least = t_quantile(count - 1)
    reach = max(float(high), least) * error, max(-float(low), least) * error
    return ratio, *with_seeds(ratio, (ratio - reach[0], ratio + reach[1]), added)


def _linearised(means: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard error and value of the ratio of two means, nan where there is none. `means`, over `count` units, are of
    both, the first's square, their product and the second's square, shape (draws, 5)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(means[:, 1] > 0, means[:, 0] / means[:, 1], np.nan)
    squares = means[:, 2] - 2 * ratio * means[:, 3] + ratio**2 * means[:, 4]
    return np.sqrt(np.maximum(squares, 0.0) / (count - 1)) / means[:, 1], ratio
