"""The few numbers that a run is looked up for, as metrics: of a report and of the pipeline that it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

import polars as pl

from elastic_core.budget import Budget
from elastic_core.statistics.estimates import FREE
from reports.claims import BASE
from reports.comparison import metric_name
from reports.content import Training
from reports.verdict import over_budgets
from reports.wording import ordered

_ENDS = ("", "_low", "_high")


def headline(
    problems: pl.DataFrame, summary: pl.DataFrame, anytime: pl.DataFrame, trainings: Mapping[str, Training]
) -> dict[str, float]:
    """Numbers by the name of their metric, each with NAME_low and NAME_high, its 95 % interval without bounds that are
    infinite:

    - anytime/BENCHMARK/MODEL/STRATEGY, in [0, 1]: as of `anytime_metrics`;
    - star/BENCHMARK/MODEL/separate, in [0, 1]: accuracy under the budget t* + s* that the model was trained under; of
      one that was not trained, under that of the trainings, where they have one in common;
    - free_tokens/BENCHMARK/MODEL/unconstrained: mean of sampled tokens without a budget;
    - gain/BENCHMARK/MODEL/separate, in [-1, 1]: paired difference from `base`, averaged over all budgets that both
      have; simultaneous over all models and benchmarks.

    Args:
        problems: of `reports.summary.cell_problems`; `summary` and `anytime` are of these.
        trainings: of models of the table, by name.
    """
    numbers = anytime_metrics(anytime)
    own = {model: training.fixed_budget for model, training in trainings.items()}
    common = next(iter(own.values())) if len(set(own.values())) == 1 else None
    for cell in summary.iter_rows(named=True):
        if cell["strategy"] == FREE:
            numbers |= _bounded(metric_name("free_tokens", cell), [cell[f"tokens_mean{end}"] for end in _ENDS])
            continue
        budget = Budget(cell["think_budget"], cell["solution_budget"])
        if cell["strategy"] == "separate" and budget == own.get(cell["model"], common):
            numbers |= _bounded(metric_name("star", cell), [cell[name] for name in ("avg_at_k", "ci_low", "ci_high")])
    separate = problems.filter(pl.col("think_budget").is_not_null(), strategy="separate")
    base = separate.filter(model=BASE)
    others = [model for model in ordered(separate["model"], BASE) if model != BASE]
    for model, found in over_budgets({model: (separate.filter(model=model), base) for model in others}).items():
        for benchmark, (gain, _) in found.items():
            place = {"benchmark": benchmark, "model": model, "strategy": "separate"}
            numbers |= _bounded(metric_name("gain", place), gain[:3])
    return numbers


def anytime_metrics(anytime: pl.DataFrame) -> dict[str, float]:
    """Of the table of `anytime_accuracy`; with several solution budgets, the largest is a model's metric."""
    numbers: dict[str, float] = {}
    for row in anytime.sort("solution_budget", nulls_last=True).iter_rows(named=True):
        numbers |= _bounded(metric_name("anytime", row), [row[f"anytime{end}"] for end in _ENDS])
    return numbers


def _bounded(name: str, values: Sequence[float | None]) -> dict[str, float]:
    ends = zip(_ENDS, values, strict=True)
    return {name + end: value for end, value in ends if value is not None and isfinite(value)}
