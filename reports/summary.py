"""One row per cell: the numbers every figure, table and claim is drawn from, and `summary.json`.

A cell is (model, benchmark, strategy, think_budget, solution_budget); a null budget is unlimited. Its columns:

- num_problems; num_samples, the k of avg@k: trajectories per problem, the smallest where problems differ;
  num_trajectories, rows in all. num_problems x num_samples < num_trajectories tells that some have more.
- avg_at_k in [0, 1] with its 95 % interval ci_low, ci_high (`elastic_core.statistics.avg_at_k`).
- think_tokens_mean, solution_tokens_mean: tokens the model sampled in each phase; tokens_mean is their sum.
  forced_tokens_mean: tokens we wrote, counted in none of the others. All are tokens per trajectory.
- forced_fraction: the share of trajectories whose think-end we wrote, because the budget was spent (think_finish
  `forced`) or the model stopped inside its thought (`end_of_text`). A vanilla or unconstrained response that stops
  there is left as it is, and is not counted.

Like avg@k, every mean is over problems of the mean over their samples.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.atomic import replacing
from elastic_core.statistics import avg_at_k, problem_means
from elastic_core.trajectory import KEY, ThinkFinish

CELL = ("model", "benchmark", "strategy", "think_budget", "solution_budget")

COLUMNS = (*KEY, "think_tokens", "forced_tokens", "solution_tokens", "think_finish", "score")
"""The columns of the trajectory table that a report reads; the others are long and stay on disk."""

SUMMARY = pl.Schema(
    {
        "model": pl.String,
        "benchmark": pl.String,
        "strategy": pl.String,
        "think_budget": pl.Int32,
        "solution_budget": pl.Int32,
        "num_problems": pl.Int64,
        "num_samples": pl.Int64,
        "num_trajectories": pl.Int64,
        "avg_at_k": pl.Float64,
        "ci_low": pl.Float64,
        "ci_high": pl.Float64,
        "tokens_mean": pl.Float64,
        "think_tokens_mean": pl.Float64,
        "solution_tokens_mean": pl.Float64,
        "forced_tokens_mean": pl.Float64,
        "forced_fraction": pl.Float64,
    }
)


def summarize(rows: pl.DataFrame) -> pl.DataFrame:
    """The cells of a trajectory table, in schema SUMMARY, sorted by CELL with unlimited budgets last.

    Raises:
        ValueError: on no rows, a key that appears twice, or a score that is missing or outside [0, 1].
    """
    if rows.is_empty():
        raise ValueError("the trajectory table is empty; expected at least one finished cell")
    if repeated := rows.height - rows.n_unique(KEY):
        raise ValueError(f"{repeated} rows repeat a key ({', '.join(KEY)}); each trajectory counts once")
    cells = rows.with_columns(forced_close=_forced_close().cast(pl.Float64)).partition_by(CELL, maintain_order=False)
    return pl.DataFrame([_cell(cell) for cell in cells], schema=SUMMARY).sort(CELL, nulls_last=True)


def write_summary_json(summary: pl.DataFrame, path: Path) -> None:
    """A JSON list with one object per cell, keys as in SUMMARY, floats to six decimals. Atomic."""
    cells = [
        {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}
        for row in summary.iter_rows(named=True)
    ]
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")


def _forced_close() -> pl.Expr:
    return pl.col("think_finish").is_in([ThinkFinish.FORCED, ThinkFinish.END_OF_TEXT]) & (pl.col("forced_tokens") > 0)


def _cell(rows: pl.DataFrame) -> dict[str, Any]:
    accuracy = avg_at_k(rows)
    think, solution = _mean(rows, "think_tokens"), _mean(rows, "solution_tokens")
    return {
        **{name: rows[name][0] for name in CELL},
        "num_problems": accuracy.num_problems,
        "num_samples": rows.group_by("problem").len()["len"].min(),
        "num_trajectories": accuracy.num_trajectories,
        "avg_at_k": accuracy.mean,
        "ci_low": accuracy.low,
        "ci_high": accuracy.high,
        "tokens_mean": think + solution,
        "think_tokens_mean": think,
        "solution_tokens_mean": solution,
        "forced_tokens_mean": _mean(rows, "forced_tokens"),
        "forced_fraction": _mean(rows, "forced_close"),
    }


def _mean(rows: pl.DataFrame, column: str) -> float:
    return float(problem_means(rows, column)["mean"].to_numpy().mean())
