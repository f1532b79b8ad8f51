"""The tables of a report. Shares are in percent, differences in points, lengths in tokens per trajectory.

They are made of the cells, `summary`, and of what `elastic_core.statistics` computes of a whole table: `differences` by
`paired_differences`, `gains` by `marginal_accuracy`, `budgets` by `budget_advice`, `spent` by
`thinking_spent`, `costs` by `cell_costs`.
"""

from __future__ import annotations

import math

import polars as pl

from elastic_core.trajectory import BUDGET
from reports.content import HIGH, LOW
from reports.summary import partial
from reports.wording import budget_text

CI = ("ci_low", "ci_high")
"""The bounds of a cell's accuracy."""
DIFFERENCE = ("low", "high")
"""The bounds of a difference."""


def shown_cells(summary: pl.DataFrame) -> pl.DataFrame:
    """Cells in display units, from the smallest budget up within a benchmark."""
    mark = pl.when(partial()).then(pl.lit(" †")).otherwise(pl.lit(""))
    seeds = pl.when(pl.col("num_seeds") > 1).then(pl.format(" × {} seeds", "num_seeds")).otherwise(pl.lit(""))
    counts = pl.format("{} × {}{}{}", "num_problems", "num_samples", seeds, mark)
    return (
        summary.with_columns(counts=counts)
        .sort("benchmark", *BUDGET, "model", nulls_last=True)
        .select(
            "benchmark",
            "model",
            budget=budget_text(),
            **estimate("accuracy (%)", "avg_at_k", CI),
            **estimate("tokens", "tokens_mean", scale=1),
            **estimate("forced (%)", "forced_fraction"),
            **{"problems × samples": "counts"},
        )
    )


def estimate(name: str, mean: str, bounds: tuple[str, str] | None = None, scale: float = 100) -> dict[str, pl.Expr]:
    """The three columns of an estimate, see `ReportTable.frame`. A bound that is null is infinite.

    Args:
        mean: its column.
        bounds: the columns of its interval; MEAN_low and MEAN_high unless given.
    """
    low, high = bounds or (f"{mean}_low", f"{mean}_high")
    known = pl.when(pl.col(mean).is_not_null())
    return {
        name: scale * pl.col(mean),
        name + LOW: known.then(scale * pl.col(low).fill_null(-math.inf)),
        name + HIGH: known.then(scale * pl.col(high).fill_null(math.inf)),
    }


def readable(frame: pl.DataFrame) -> pl.DataFrame:
    """By benchmark, then model, and strategies as words."""
    return frame.sort("benchmark", "model", maintain_order=True).with_columns(
        pl.col("strategy").str.replace_all("_", " ")
    )
