"""The rules that every row of a trajectory table obeys, to the token."""

from __future__ import annotations

import polars as pl

from elastic_core.sweep.sound import RULES

_BY_TOKEN = {
    "tokens of both phases and forced ones are the response": pl.col("response_ids").list.len()
    == pl.col("think_tokens") + pl.col("solution_tokens") + pl.col("forced_tokens"),
    "a flag for every token": pl.col("forced").list.len() == pl.col("response_ids").list.len(),
    "forced tokens are those with a flag": pl.col("forced").list.sum() == pl.col("forced_tokens"),
    "only a conversation has turns": (pl.col("turns").list.len() > 0) == (pl.col("strategy") == "reasonflux_zero"),
}


def broken_rules(rows: pl.DataFrame) -> dict[str, int]:
    """Rule → number of rows that break it. A null budget is unlimited and breaks nothing."""
    counts = {name: rows.filter(~rule.fill_null(True)).height for name, rule in (RULES | _BY_TOKEN).items()}
    return {name: count for name, count in counts.items() if count}
