"""The tables of a report. Shares are in percent, differences in points, lengths in tokens per trajectory.

Their frames are made from the cells, `summary`, and from `elastic_core.statistics`: `differences` from
`paired_differences`, `gains` from `marginal_accuracy`, `budgets` from `budget_advice`, `spent` from `thinking_spent`,
`costs` from `cell_costs`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from importlib.resources import files
from typing import Any

import polars as pl

from elastic_core.system.files import Markdown, escaped
from elastic_core.trajectory import BUDGET
from reports.content import HIGH, LOW, ReportTable
from reports.summary import partial
from reports.wording import budget_text, captioned

CI = ("ci_low", "ci_high")  # The bounds of a cell's accuracy.
DIFFERENCE = ("low", "high")  # The bounds of a difference.
PLACE = ("benchmark", "model", "strategy")  # Columns that name a line.
COUNTS = {"problems": "num_problems", "trajectories": "num_trajectories"}  # Columns of its sizes.


def table_of(name: str, frame: pl.DataFrame, *signed: str, **words: Any) -> ReportTable | None:
    """A table with the title and caption of `captioned`; columns `signed` are shown with their sign. None without a
    line."""
    return ReportTable(name, *captioned("tables", name, **words), frame, frozenset(signed)) if frame.height else None


def shown_cells(summary: pl.DataFrame) -> pl.DataFrame:
    """Cells in display units, from the smallest budget up within a benchmark."""
    mark = pl.when(partial()).then(pl.lit(" †")).otherwise(pl.lit(""))
    seeds = pl.when(pl.col("num_seeds") > 1).then(pl.format(" × {} seeds", "num_seeds")).otherwise(pl.lit(""))
    counts = pl.format("{} × {}{}{}", "num_problems", "num_samples", seeds, mark)
    cells = summary.with_columns(counts=counts).sort("benchmark", *BUDGET, "model", nulls_last=True)
    return cells.select(
        *("benchmark", "model"),
        budget=budget_text(),
        **estimate("accuracy (%)", "avg_at_k", CI),
        **estimate("tokens", "tokens_mean", scale=1),
        **estimate("forced (%)", "forced_fraction"),
        **{"problems × samples": "counts"},
    )


def estimate(name: str, mean: str, bounds: tuple[str, str] | None = None, scale: float = 100) -> dict[str, pl.Expr]:
    """The three columns of an estimate, see `ReportTable.frame`, from the columns of its mean and bounds, by default
    MEAN_low and MEAN_high. A bound that is null is infinite."""
    low, high = bounds or (f"{mean}_low", f"{mean}_high")
    known = pl.when(pl.col(mean).is_not_null())
    return {
        name: scale * pl.col(mean),
        name + LOW: known.then(scale * pl.col(low).fill_null(-math.inf)),
        name + HIGH: known.then(scale * pl.col(high).fill_null(math.inf)),
    }


def readable(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort by benchmark, then model, and write strategies as words."""
    words = pl.col("strategy").str.replace_all("_", " ")
    return frame.sort("benchmark", "model", maintain_order=True).with_columns(words)


def grid(header: list[str], lines: list[list[str]]) -> Markdown:
    """A table of these names and lines; plain text is escaped."""
    places = [header, ["---"] * len(header), *lines]
    return Markdown("\n".join(f"| {' | '.join(map(escaped, line))} |" for line in places))


PUBLISHED = pl.Schema(
    dict.fromkeys(("family", "model", "benchmark", "metric", "think_budget", "solution_budget"), pl.String)
    | {"tokens": pl.Int64, "value": pl.Float64, "source": pl.String, "place": pl.String}
)
"""One published number per row. Family is the released model that it is held against. A model "A>B" is a pair: A thinks
and B solves. Budgets in tokens, or "unlimited"; tokens are a mean per response; both are null where the source does not
say. The value is in percent, but for the metric "rating". Source is the document, place is where in it."""

ACCURACY = ("accuracy", "avg@16", "avg@8", "pass@1")
"""Metrics that are a share of right answers, in percent: what an accuracy of ours may be shown beside."""

SWAPS, ITERATIVE = "Table 2", "Table 3"
"""Places in Elastic Reasoning: who thinks and who solves; iterative training."""


def published(benchmarks: Collection[str], names: Collection[str]) -> pl.DataFrame:
    """Published numbers on these benchmarks in the families of `names`, those of the models of a report and of its
    preset, in schema PUBLISHED; often nothing."""
    rows = everything()
    known = pl.concat([rows.select("family", name="model"), rows.select("family", name="family")]).unique()
    slugs = [f"-{name.lower()}" for name in names]
    related = {family for family, name in known.iter_rows() if any(slug.endswith(f"-{name.lower()}") for slug in slugs)}
    return rows.filter(pl.col("benchmark").is_in(list(benchmarks)), pl.col("family").is_in(related))


def everything() -> pl.DataFrame:
    """Every published number, in schema PUBLISHED."""
    with files("reports").joinpath("published/results.csv").open("rb") as stream:
        return pl.read_csv(stream, schema=PUBLISHED)


def stated_budget() -> pl.Expr:
    """The budget of a published number, as `Budget` is written where the source states one; else the tokens that it
    took, where those are known."""
    tokens = pl.format("not stated ({} tokens)", "tokens")
    unstated = pl.when(pl.col("tokens").is_null()).then(pl.lit("not stated")).otherwise(tokens)
    return pl.when(pl.col("think_budget").is_null()).then(unstated).otherwise(budget_text())


def sources(rows: pl.DataFrame) -> str:
    """Sources of published numbers, for a caption."""
    return "; ".join(rows["source"].unique().sort())
