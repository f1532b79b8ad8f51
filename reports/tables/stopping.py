"""Stop rules against fixed budgets, in numbers."""

from __future__ import annotations

import polars as pl

from elastic_core.statistics.stop_frontier import BUDGETED, ORACLE, best_rules
from reports.content import ReportTable
from reports.tables import COUNTS, estimate, table_of

CAPTION = (
    "Each stop rule that no other one beats in both accuracy and cost, as measured, beside the fixed budgets. Probes: "
    "answers drawn on the way, charged in full. Saved and difference: from a response without a budget. Gain: over the "
    "mixture of fixed budgets that costs as much, paired by problem. 95 % intervals, which hold for all rules that "
    "were tried together (saved: each by itself)."
)


def stop_rules(found: pl.DataFrame, unit: str) -> ReportTable | None:
    """`outcomes` with benchmark and model: fixed budgets, the best rules, and the oracle. None without a rule."""
    if found.is_empty():
        return None
    shown = [
        pl.concat([part.filter(pl.col("kind").is_in([BUDGETED, ORACLE])), best_rules(part)]).sort("cost")
        for part in found.partition_by("benchmark", "model", maintain_order=True)
    ]
    names = (
        pl.when(kind=ORACLE)
        .then(pl.lit("best of each sample"))
        .otherwise(pl.coalesce("rule", pl.col("budget").cast(pl.String), pl.lit("no budget")))
    )
    saved, difference, gain = "saved (%)", "difference from no budget", "gain over the mixture"
    frame = pl.concat(shown).select(
        *("benchmark", "model"),
        names.alias("budget or rule"),
        (100 * pl.col("accuracy")).alias("accuracy (%)"),
        **{unit: pl.col("cost")},
        **estimate(saved, "saved", ("saved_low", "saved_high")),
        **estimate(difference, "difference", ("difference_low", "difference_high")),
        **estimate(gain, "gain", ("gain_low", "gain_high")),
        probes=pl.col("probes"),
        **{"stopped (%)": 100 * pl.col("stopped")},
        **COUNTS,
    )
    return table_of("stop_rules", "Stop rules against fixed budgets", CAPTION, frame, saved, difference, gain)
