"""Numbers that others published, to be held against ours: marked as theirs wherever they are shown."""

from __future__ import annotations

from importlib.resources import files

import polars as pl

from reports.wording import budget_text

PUBLISHED = pl.Schema(
    {
        "model": pl.String,
        "benchmark": pl.String,
        "metric": pl.String,
        "think_budget": pl.String,
        "solution_budget": pl.String,
        "tokens": pl.Int64,
        "value": pl.Float64,
        "source": pl.String,
    }
)
"""One published number per row. Budgets in tokens, or "unlimited"; tokens are a mean per response; both are null where
the source does not say. The value is in percent, but for the metric "rating"."""

ACCURACY = ("accuracy", "avg@16", "pass@1")
"""Metrics that are a share of right answers, in percent: what an accuracy of ours may be shown beside."""


def published(benchmarks: list[str]) -> pl.DataFrame:
    """What was published about these benchmarks, in schema PUBLISHED; often nothing."""
    with files(__name__).joinpath("results.csv").open("rb") as stream:
        return pl.read_csv(stream, schema=PUBLISHED).filter(pl.col("benchmark").is_in(benchmarks))


def stated_budget() -> pl.Expr:
    """The budget of a published number, as `Budget` is written where the source states one."""
    return pl.when(pl.col("think_budget").is_null()).then(pl.lit("not stated")).otherwise(budget_text())


def sources(rows: pl.DataFrame) -> str:
    """Where published numbers come from, for the caption that they are under."""
    return "; ".join(rows["source"].unique().sort())
