"""What others published, to be held against ours and marked as theirs wherever it is shown: `results.csv`.

A number is shown in reports of its family: those in which a model of that family, or the model that the family is
named after, was measured under its published name, and those of a preset whose name ends with such a name. So a sweep
called `evaluate-e1-math-1.5b`, or one that measures a model called `E1-Math-1.5B`, shows what was published of that
model, of the one that it was trained from, and of those that its authors set beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.resources import files

import polars as pl

from reports.wording import budget_text

PUBLISHED = pl.Schema(
    {
        "family": pl.String,
        "model": pl.String,
        "benchmark": pl.String,
        "metric": pl.String,
        "think_budget": pl.String,
        "solution_budget": pl.String,
        "tokens": pl.Int64,
        "value": pl.Float64,
        "source": pl.String,
        "place": pl.String,
    }
)
"""One published number per row. Family is the released model that it is held against. A model "A>B" is a pair: A thinks
and B solves. Budgets in tokens, or "unlimited"; tokens are a mean per response; both are null where the source does not
say. The value is in percent, but for the metric "rating". Source is the document, place is where in it."""

ACCURACY = ("accuracy", "avg@16", "avg@8", "pass@1")
"""Metrics that are a share of right answers, in percent: what an accuracy of ours may be shown beside."""

SWAPS, ITERATIVE = "Table 2", "Table 3"
"""Places in Elastic Reasoning: who thinks and who solves; iterative training."""


def published(benchmarks: Collection[str], names: Collection[str]) -> pl.DataFrame:
    """What was published about these benchmarks in the families of `names`, in schema PUBLISHED; often nothing.

    Args:
        names: of the models of a report, and of its preset.
    """
    rows = everything()
    known = pl.concat([rows.select("family", name="model"), rows.select("family", name="family")]).unique()
    slugs = [name.lower() for name in names]
    related = {
        family
        for family, name in known.iter_rows()
        if any(slug == name.lower() or slug.endswith(f"-{name.lower()}") for slug in slugs)
    }
    return rows.filter(pl.col("benchmark").is_in(list(benchmarks)), pl.col("family").is_in(related))


def everything() -> pl.DataFrame:
    """Every published number, in schema PUBLISHED."""
    with files("reports.published").joinpath("results.csv").open("rb") as stream:
        return pl.read_csv(stream, schema=PUBLISHED)


def stated_budget() -> pl.Expr:
    """The budget of a published number, as `Budget` is written where the source states one; else the tokens that it
    took, where those are known."""
    tokens = pl.format("not stated ({} tokens)", "tokens")
    unstated = pl.when(pl.col("tokens").is_null()).then(pl.lit("not stated")).otherwise(tokens)
    return pl.when(pl.col("think_budget").is_null()).then(unstated).otherwise(budget_text())


def sources(rows: pl.DataFrame) -> str:
    """Where published numbers come from, for the caption that they are under."""
    return "; ".join(rows["source"].unique().sort())
