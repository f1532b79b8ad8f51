"""The rules that every row of a trajectory table obeys, to the token; what a pipeline left behind, and whether two did
the same work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from elastic_core.sweep import sound
from elastic_core.trajectory import KEY

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_BY_TOKEN = {
    "tokens of both phases and forced ones are the response": pl.col("response_ids").list.len()
    == pl.col("think_tokens") + pl.col("solution_tokens") + pl.col("forced_tokens"),
    "a flag for every token": pl.col("forced").list.len() == pl.col("response_ids").list.len(),
    "forced tokens are those with a flag": pl.col("forced").list.sum() == pl.col("forced_tokens"),
    "only a conversation has turns": (pl.col("turns").list.len() > 0) == (pl.col("strategy") == "reasonflux_zero"),
}


def broken_rules(rows: pl.DataFrame) -> dict[str, str]:
    """Rules that rows break, and how. A null budget is unlimited and breaks nothing."""
    counts = {name: rows.filter(~rule.fill_null(True)).height for name, rule in _BY_TOKEN.items()}
    return {name: f"{count} rows" for name, count in counts.items() if count} | sound.broken_rules(rows)


def shards(runs: Path) -> dict[Path, int]:
    """The smoke preset's finished files of rows; a file written again has another number."""
    return {file: file.stat().st_ino for file in runs.glob("smoke/tables/*/*.parquet")}


def recorded(client: MlflowClient) -> list[Run]:
    """What MLflow has of the smoke preset."""
    experiment = client.get_experiment_by_name("smoke")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id], max_results=1000))


def assert_same_work(rows: pl.DataFrame, expected: pl.DataFrame) -> None:
    """The rows of two runs of one pipeline: the base's are equal, and 99 % of the trained model's have the same tokens.

    Each run sums gradients in an order of its own, so the last bits of trained weights differ (1.2e-7 after 12 steps of
    the miniature), and a token may, once in very many.
    """
    assert rows.height == rows.n_unique(KEY) == expected.height
    (base,) = set(rows["model"]) & set(expected["model"])
    assert rows.filter(model=base).sort(KEY).equals(expected.filter(model=base).sort(KEY)), "rows of the base differ"
    keys = [name for name in KEY if name != "model"]
    trained, wanted = (
        table.filter(pl.col("model") != base).select(*keys, "response_ids") for table in (rows, expected)
    )
    both = trained.join(wanted, on=keys, how="full", suffix="_wanted", nulls_equal=True)
    same = both.filter(pl.col("response_ids").eq_missing(pl.col("response_ids_wanted"))).height
    assert same >= 0.99 * both.height, f"{both.height - same} of {both.height} rows of the trained model differ"
