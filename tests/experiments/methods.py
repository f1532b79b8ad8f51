"""The comparison of docs/methods.md: keep the scores of its sweep, and print its tables.

elastic run ablation --preset miniature-methods --set 'train.seeds=[0]'   # then [0,1], [0,1,2]
python -m tests.experiments.methods --keep   # scores of the newest sweep to tests/experiments/methods/scores.parquet
python -m tests.experiments.methods          # the tables of what is there
"""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.budgets import anytime_accuracy, differences_together, trapezoid_weights
from elastic_core.statistics.estimates import TRAIN_SEED, mean_tokens, problem_table, seeds_as_one
from elastic_core.sweep.table import SweepTable
from elastic_core.system.files import replacing
from flows.runtime.environment import runs_directory
from tasks.records.stage_directory import TABLE

SCORES = Path(__file__).with_suffix("") / "scores.parquet"
BASELINE = "e1"
CELL = ["model", "benchmark", "problem", "strategy", "think_budget"]
BUDGETS = (12, 24, 48, 72, 96, 144, 192)


def keep() -> None:
    """Counts of every cell and problem of the newest sweep: samples, right ones, tokens, solutions that the model
    ended, and thoughts that a budget cut."""
    tables = (runs_directory() / "miniature-methods").glob(f"sweep/*/{TABLE}")
    rows = SweepTable(max(tables, key=lambda table: table.stat().st_mtime)).read()
    counts = rows.group_by(CELL).agg(
        samples=pl.len().cast(pl.UInt16),
        right=pl.col("score").sum().cast(pl.UInt16),
        tokens=(pl.col("think_tokens") + pl.col("solution_tokens")).sum().cast(pl.UInt32),
        ended=(pl.col("solution_finish") == "stop").sum().cast(pl.UInt16),
        cut=(pl.col("think_finish") == "forced").sum().cast(pl.UInt16),
    )
    SCORES.parent.mkdir(exist_ok=True)
    with replacing(SCORES) as temporary:
        counts.sort(CELL).write_parquet(temporary, compression="zstd")


def rows() -> pl.DataFrame:
    """A row per model, seed, problem and cell, both levels as one benchmark: the base's under every seed."""
    found = pl.read_parquet(SCORES).with_columns(
        problem=pl.concat_str("benchmark", "problem", separator="/"),
        benchmark=pl.lit("both"),
        solution_budget=pl.when(pl.col("strategy") == "separate").then(32).cast(pl.Int64),
        score=pl.col("right") / pl.col("samples"),
        **{name: pl.col(name) / pl.col("samples") for name in ("tokens", "ended", "cut")},
    )
    return seeds_as_one(found)


def table(rows: pl.DataFrame) -> None:
    """Anytime accuracy, the difference from E1 with intervals that hold together, and the secondary figures."""
    by = ["model", "benchmark", "strategy", "think_budget", "solution_budget"]
    seeds = rows.group_by("model").agg(pl.col(TRAIN_SEED).unique().sort())
    seeds_of = {model: tuple(found) for model, found in seeds.iter_rows()}
    separate = rows.filter(strategy="separate")
    anytime = {}
    arms = sorted(model for model in seeds_of if model not in ("base", BASELINE))
    for model in seeds_of:
        problems = problem_table(_of(separate, model, seeds_of[model]), ["score"], by)
        (anytime[model],) = anytime_accuracy(problems).iter_rows(named=True)
    both = {arm: tuple(sorted({*seeds_of[arm]} & {*seeds_of[BASELINE]})) for arm in arms}
    pairs = [(_area(separate, arm, both[arm]), _area(separate, BASELINE, both[arm])) for arm in arms]
    over = dict(zip(arms, differences_together(pairs), strict=True))
    print("| training | seeds | anytime accuracy | over E1 | no budget | tokens without | ended at 48 | cut at 48 |")
    print("|---|---|---|---|---|---|---|---|")
    for model in sorted(anytime, key=lambda model: -anytime[model]["anytime"]):
        found = anytime[model]
        cells = [model, ", ".join(map(str, seeds_of[model])) if model != "base" else ""]
        cells.append(_percent(found["anytime"], found["anytime_low"], found["anytime_high"]))
        cells.append(_percent(*over[model].row[:3], sign="+") if model in over else "")
        free = problem_table(_of(rows, model, seeds_of[model]).filter(strategy="unconstrained"), ["score", "tokens"])
        cells.append(_percent(*mean_score(free).row[:3]))
        cells.append("{:.0f} [{:.0f}, {:.0f}]".format(*mean_tokens(free, "tokens").row[:3]))
        hard = _of(separate, model, seeds_of[model]).filter(think_budget=48)
        for name in ("ended", "cut"):
            cells.append(_percent(*mean_score(problem_table(hard.with_columns(score=name), ["score"])).row[:3]))
        print("| " + " | ".join(cells) + " |")


def rank_stability(rows: pl.DataFrame) -> None:
    """Kendall's tau between the orders of the trained models by anytime accuracy, of each pair of seeds."""
    weights = dict(zip(BUDGETS, trapezoid_weights(BUDGETS, "log-uniform"), strict=True))
    cells = rows.filter(pl.col("think_budget").is_in(BUDGETS), strategy="separate").filter(pl.col("model") != "base")
    weighed = cells.with_columns(
        pl.col("score") * pl.col("think_budget").replace_strict(weights, return_dtype=pl.Float64)
    )
    areas = weighed.group_by("model", TRAIN_SEED).agg(pl.col("score").sum() / pl.col("problem").n_unique())
    for a, b in combinations(sorted(areas[TRAIN_SEED].unique()), 2):
        both = areas.filter(pl.col(TRAIN_SEED) == a).join(areas.filter(pl.col(TRAIN_SEED) == b), on="model")
        signs = [
            np.sign((x - y) * (u - v)) for (x, u), (y, v) in combinations(both.select("score", "score_right").rows(), 2)
        ]
        print(f"seeds {a} and {b}: tau {np.mean(signs):+.2f} over {both.height} methods")


def _of(rows: pl.DataFrame, model: str, seeds: tuple[int, ...]) -> pl.DataFrame:
    of_model = rows.filter(pl.col("model") == model)
    return of_model if model == "base" else of_model.filter(pl.col(TRAIN_SEED).is_in(seeds))


def _area(rows: pl.DataFrame, model: str, seeds: tuple[int, ...]) -> pl.DataFrame:
    """Anytime accuracy of each problem and seed, as a problem table."""
    weights = dict(zip(BUDGETS, trapezoid_weights(BUDGETS, "log-uniform"), strict=True))
    cells = _of(rows, model, seeds).filter(pl.col("think_budget").is_in(BUDGETS))
    weighed = cells.with_columns(
        pl.col("score") * pl.col("think_budget").replace_strict(weights, return_dtype=pl.Float64)
    )
    summed = weighed.group_by("problem", TRAIN_SEED).agg(pl.col("score").sum().clip(0, 1))
    return problem_table(summed, ["score"])


def _percent(mean: float, low: float, high: float, sign: str = "") -> str:
    return f"{100 * mean:{sign}.1f} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


if __name__ == "__main__":
    if "--keep" in sys.argv:
        keep()
    table(rows())
    rank_stability(rows())
