"""The numbers every figure, table and claim is drawn from: a row per cell, as in `summary.json`.

A cell is (model, benchmark, strategy, think_budget, solution_budget); a null budget is unlimited. Its columns:

- num_problems; num_samples, the k of avg@k: trajectories per problem, the smallest where problems differ; num_seeds,
  trainings that the model stands for, each measured so; num_trajectories, rows in all.
- avg_at_k in [0, 1] with its interval ci_low, ci_high; pass_at_k, maj_at_k in [0, 1] of num_samples, the expectation
  over a problem's subsets of k where it has more; avg_at_k_by_seed, tokens_mean_by_seed where there are several seeds.
- published_avg_at_k, avg@k by the authors' grading (`elastic_core.rewards.as_published`); null unless all rows have it.
- think_tokens_mean and solution_tokens_mean, sampled in each phase, and tokens_mean, their sum; navigator_tokens_mean,
  the navigator's part of the thinking; forced_tokens_mean, which we wrote, counted in none of the others.
- input_tokens_mean, cached_tokens_mean, output_tokens_mean, turns_mean: the work of a response, by which
  `elastic_core.statistics.cost` prices it.
- forced_fraction: the share of trajectories with a think-end that we wrote (`forced_close`); leak, of those whose
  solution goes on thinking after it (`elastic_core.statistics.responses.leaks`).
- <name>_low, <name>_high: the 95 % interval of each of these. Null for the tokens of a single problem, which bounds
  nothing.

Every mean is over problems of the mean over their samples, of several seeds over seeds with equal weights; tokens are
per trajectory; pass@k and maj@k are those of one training's samples. `elastic_core.statistics` has the formulas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import polars.selectors as cs

from elastic_core.budget import Budget
from elastic_core.statistics.accuracy import mean_score, score_differences
from elastic_core.statistics.at_k import maj_at_k_values, pass_at_k_values
from elastic_core.statistics.cost import WORK, with_work
from elastic_core.statistics.estimates import (
    by_seed,
    forced_close,
    mean_tokens,
    over_seeds,
    pooled,
    problem_table,
    sampled_tokens,
    seed_columns,
    seed_keys,
)
from elastic_core.statistics.intervals import Estimate
from elastic_core.statistics.responses import leaks
from elastic_core.strategies import FREE, SERVED
from elastic_core.system.files import write_text
from elastic_core.trajectory import BUDGET, CELL, KEY, SCHEMA
from reports.content import Training
from reports.wording import ordered

BASE, TRAINED = "base", "trained"  # The two models that a pipeline measures.
SWAP = ">"  # Between the thinker and the solver of a pair of models that answer together.

READ = (
    *KEY, "prompt_tokens", "think_tokens", "forced_tokens", "solution_tokens", "navigator_tokens", "think_finish",
    "answer", "score", "published_score", "solution_logprob", "grade_status", *WORK,
    leaks().alias("leak"),
)  # fmt: skip
"""What a report reads of a trajectory table; long columns stay on disk."""

_COUNTS = ("tokens", "think_tokens", "solution_tokens", "navigator_tokens", "forced_tokens", *WORK)
"""Columns of `cell_problems` that count tokens and turns of a response."""
_MEANS: dict[str, tuple[str, Callable[[pl.DataFrame, str], Estimate]]] = {
    "pass_at_k": ("pass_at_k", mean_score),
    "maj_at_k": ("maj_at_k", mean_score),
    "published_avg_at_k": ("published_score", mean_score),
    **{f"{name}_mean": (name, mean_tokens) for name in _COUNTS},
    "forced_fraction": ("forced_close", mean_score),
    "leak": ("leak", mean_score),
}
"""Of a cell beside its accuracy: the column of `cell_problems` that it is the mean of, and whose interval it has."""

SUMMARY = pl.Schema(
    {
        **{name: SCHEMA[name] for name in CELL},
        **dict.fromkeys(("num_problems", "num_samples", "num_seeds", "num_trajectories"), pl.Int64()),
        **dict.fromkeys(("avg_at_k", "ci_low", "ci_high"), pl.Float64()),
        **{f"{name}{bound}": pl.Float64() for name in _MEANS for bound in ("", "_low", "_high")},
        **{by_seed(name): pl.List(pl.Float64()) for name in ("avg_at_k", "tokens_mean")},
    }
)


def report_rows(rows: pl.LazyFrame, *more: pl.Expr) -> pl.LazyFrame:
    """`READ` and `more` of a trajectory table."""
    return with_work(rows).select(*READ, *more)


def summarize(rows: pl.DataFrame) -> pl.DataFrame:
    """The cells of a trajectory table, in schema SUMMARY, sorted by CELL with unlimited budgets last; ValueError on no
    rows, a key that appears twice, or a score that is missing or outside [0, 1]."""
    return summarize_problems(cell_problems(rows))


def summarize_problems(problems: pl.DataFrame) -> pl.DataFrame:
    """`summarize` of `cell_problems`."""
    cells = problems.partition_by(CELL, maintain_order=True)
    return pl.DataFrame([_cell(cell) for cell in cells], schema=SUMMARY).sort(CELL, nulls_last=True)


def partial() -> pl.Expr:
    """Whether a cell has fewer trajectories than the fullest of its benchmark, as in a sweep that is not done."""
    size = pl.col("num_trajectories") / pl.col("num_seeds")
    return size < size.max().over("benchmark")


def is_partial(summary: pl.DataFrame) -> bool:
    """Whether any cell is `partial`."""
    return bool(summary.select(partial().any()).item())


def write_summary_json(summary: pl.DataFrame, anytime: pl.DataFrame, ratings: pl.DataFrame, path: Path) -> None:
    """A JSON object of three lists: "cells", keys as in SUMMARY; "anytime", an object per ladder of thinking budgets;
    and "ratings", keys as in `RATINGS`. Floats to six decimals. Atomic."""
    lists = {"cells": summary, "anytime": anytime, "ratings": ratings}
    rounded = (cs.float().round(6), cs.list().list.eval(pl.element().round(6)))
    text = json.dumps({name: table.with_columns(rounded).to_dicts() for name, table in lists.items()}, indent=1)
    write_text(path, text + "\n")


def cell_problems(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per cell and problem of a trajectory table, whole or as `report_rows`, with everything that a cell
    averages over its problems: score, pass_at_k, maj_at_k, tokens, think_tokens, solution_tokens, navigator_tokens,
    forced_tokens, forced_close, leak, the columns `WORK`, num_samples, and the cell's k; and published_score, null in
    cells with rows that lack it. ValueError as `summarize`."""
    if rows.is_empty():
        raise ValueError("the trajectory table is empty; expected at least one finished cell")
    by = [*CELL, *seed_keys(rows)]
    texts = [name for name in KEY if SCHEMA[name] == pl.String]
    # Numbers in the order of the texts: grouped and sorted alike, in two thirds of the time.
    rows = rows.with_columns(pl.col(name).cast(pl.Enum(rows[name].unique().sort())) for name in texts)
    if repeated := rows.height - rows.n_unique([*by, "problem", "sample"]):
        raise ValueError(f"{repeated} rows repeat a key ({', '.join(KEY)}); each trajectory counts once")
    if "forced" in rows.columns:
        rows = report_rows(rows.lazy(), *map(pl.col, seed_keys(rows))).collect()
    rows = rows.with_columns(tokens=sampled_tokens(), forced_close=forced_close())
    means = ["score", *_COUNTS, "forced_close", "leak"]
    table = problem_table(rows, means, by).with_columns(k=pl.col("num_samples").min().over(CELL))
    keys, parts = [*by, "problem"], []
    # Cells may differ in k; mostly all have the same, and are taken together.
    of_k = table.partition_by("k", as_dict=True)
    for (k,), problems in of_k.items():
        cells = problems.select(CELL).unique()
        sampled = rows if len(of_k) == 1 else rows.join(cells, on=CELL, how="semi", nulls_equal=True)
        for at_k in (pass_at_k_values, maj_at_k_values, _published_values):
            problems = problems.join(at_k(sampled, k, keys), on=keys, nulls_equal=True, maintain_order="left")
        parts.append(problems)
    whole = pl.concat(parts).cast(dict.fromkeys(texts, pl.String()))
    if len(by) == len(CELL):
        return whole
    return over_seeds(whole, [*means, "pass_at_k", "maj_at_k", "published_score"], [*CELL, "problem", "k"])


def _published_values(rows: pl.DataFrame, _: int, keys: Sequence[str]) -> pl.DataFrame:
    score = pl.col("published_score") if "published_score" in rows.columns else pl.lit(None, pl.Float64)
    of_whole_cells = pl.when(score.is_not_null().all().over(CELL)).then(score)
    return rows.select(*keys, published_score=of_whole_cells).group_by(keys).agg(pl.col("published_score").mean())


def _cell(problems: pl.DataFrame) -> dict[str, Any]:
    accuracy = mean_score(problems)
    cell = {
        **{name: problems[name][0] for name in CELL},
        "num_problems": accuracy.num_problems,
        "num_samples": problems["k"][0],
        "num_trajectories": accuracy.num_trajectories,
        "avg_at_k": accuracy.mean,
        "ci_low": accuracy.low,
        "ci_high": accuracy.high,
    }
    for name, (column, mean) in _MEANS.items():
        cell |= {} if problems[column].has_nulls() else mean(problems, column).columns(name)
    scores, tokens = (seed_columns(problems, column).mean(axis=1).tolist() for column in ("score", "tokens"))
    cell["num_seeds"] = len(scores)
    if len(scores) > 1:
        cell |= {by_seed("avg_at_k"): scores, by_seed("tokens_mean"): tokens}
    return cell


class Averaged(NamedTuple):
    """A paired difference of accuracy, averaged over a number of budgets."""

    difference: Estimate
    num_budgets: int


def over_budgets(pairs: Mapping[str, tuple[pl.DataFrame, pl.DataFrame]]) -> dict[str, dict[str, Averaged]]:
    """The first minus the second of each pair (rows of `cell_problems` of one model and strategy on each side), over
    the problems and budgets that both have, by name of the pair and by benchmark; left out where there are none. All
    intervals hold together, because a reader picks from them."""
    place = ["benchmark", "problem", *BUDGET]
    names, sides = [], []
    for name, (ours, theirs) in pairs.items():
        shared = ours.select(place).join(theirs.select(place), on=place, nulls_equal=True)
        for (benchmark,), places in shared.sort("benchmark").partition_by("benchmark", as_dict=True).items():
            joined = (side.join(places, on=place, how="semi", nulls_equal=True) for side in (ours, theirs))
            first, second = map(pooled, joined)
            sides.append((first, second))
            names.append((name, str(benchmark), places.n_unique(BUDGET)))
    found: dict[str, dict[str, Averaged]] = {}
    for (name, benchmark, budgets), estimate in zip(names, score_differences(sides), strict=True):
        found.setdefault(name, {})[benchmark] = Averaged(estimate, budgets)
    return found


def main_model(models: Iterable[str]) -> str:
    """The model that a report advises on: the trained one; else the only one next to base that is not a pair of models;
    else base, or where there is none the first by name."""
    names = ordered(models, BASE)
    single = [name for name in names if name != BASE and ">" not in name]
    if TRAINED in names:
        return TRAINED
    return single[0] if len(single) == 1 else names[0]


ENDS = ("", "_low", "_high")


def headline(
    problems: pl.DataFrame, summary: pl.DataFrame, anytime: pl.DataFrame, trainings: Mapping[str, Training]
) -> dict[str, float]:
    """Numbers by the name of their metric, each with NAME_low and NAME_high, the finite bounds of its 95 % interval:

    - anytime/BENCHMARK/MODEL/STRATEGY, in [0, 1]: as of `anytime_metrics`;
    - star/BENCHMARK/MODEL/separate, in [0, 1]: accuracy under the budget t* + s* that the model was trained under; of
      one that was not trained, under that of the trainings, where they have one in common;
    - free_tokens/BENCHMARK/MODEL/unconstrained: mean of sampled tokens without a budget;
    - gain/BENCHMARK/MODEL/separate, in [-1, 1]: paired difference from `base`, averaged over all budgets that both
      have; simultaneous over all models and benchmarks.
    """
    numbers = anytime_metrics(anytime)
    own = {model: training.fixed_budget for model, training in trainings.items()}
    common = next(iter(own.values())) if len(set(own.values())) == 1 else None
    for cell in summary.iter_rows(named=True):
        if cell["strategy"] == FREE:
            numbers |= _bounded(metric_name("free_tokens", cell), [cell[f"tokens_mean{end}"] for end in ENDS])
            continue
        budget = Budget(cell["think_budget"], cell["solution_budget"])
        if cell["strategy"] == SERVED and budget == own.get(cell["model"], common):
            numbers |= _bounded(metric_name("star", cell), [cell[name] for name in ("avg_at_k", "ci_low", "ci_high")])
    separate = problems.filter(pl.col("think_budget").is_not_null(), strategy=SERVED)
    base = separate.filter(model=BASE)
    others = [model for model in ordered(separate["model"], BASE) if model != BASE]
    for model, found in over_budgets({model: (separate.filter(model=model), base) for model in others}).items():
        for benchmark, (gain, _) in found.items():
            place = {"benchmark": benchmark, "model": model, "strategy": SERVED}
            numbers |= _bounded(metric_name("gain", place), gain[:3])
    return numbers


def anytime_metrics(anytime: pl.DataFrame) -> dict[str, float]:
    """Metrics of the table of `anytime_accuracy`; with several solution budgets, the largest is a model's metric."""
    numbers: dict[str, float] = {}
    for row in anytime.sort("solution_budget", nulls_last=True).iter_rows(named=True):
        numbers |= _bounded(metric_name("anytime", row), [row[f"anytime{end}"] for end in ENDS])
    return numbers


def _bounded(name: str, values: Sequence[float | None]) -> dict[str, float]:
    ends = zip(ENDS, values, strict=True)
    return {name + end: value for end, value in ends if value is not None and isfinite(value)}


def metric_name(quantity: str, row: Mapping[str, Any]) -> str:
    """One metric per curve, whatever characters its names have."""
    words = "/".join([quantity, *(row[name] for name in ("benchmark", "model", "strategy"))])
    words = re.sub(r"[^\w\-. :/>@→+]", "-", words)  # Of a closing's sentence.
    return words.replace(" → ", "-to-").replace(">", "-then-").replace("@", "-seed-")
