"""A sweep in MLflow and Prefect: one MLflow run per cell, its curves on the sweep's own run, and a table artifact."""

from __future__ import annotations

from typing import Any

import polars as pl
from prefect.artifacts import create_table_artifact

from elastic_core.trajectory import CELL
from tasks.tracking import Result, Tracker

_TAGS = {"think_budget": "t", "solution_budget": "s"}


def record_cells(tracker: Tracker, run_id: str, label: str, summary: pl.DataFrame) -> None:
    """On the sweep's run accuracy is logged over tokens, so that MLflow's chart of it is the accuracy-vs-tokens plot.

    Args:
        summary: as `reports.summary.summarize` returns it.
    """
    cells = summary.to_dicts()
    tracker.record(run_id, [_result(label, cell) for cell in cells])
    tracker.log_points(
        run_id,
        [
            (
                f"accuracy/{cell['benchmark']}/{_plain(cell['model'])}/{cell['strategy']}",
                round(cell["tokens_mean"]),
                cell["avg_at_k"],
            )
            for cell in cells
        ],
    )
    table = [{**cell, **{name: "unlimited" if cell[name] is None else cell[name] for name in _TAGS}} for cell in cells]
    create_table_artifact(table, key="sweep", description=f"Every cell of {label}")


def _result(label: str, cell: dict[str, Any]) -> Result:
    key = {name: "unlimited" if cell[name] is None else str(cell[name]) for name in CELL}
    name = f"{cell['model']} {cell['benchmark']} {cell['strategy']} {key['think_budget']}+{key['solution_budget']}"
    metrics = {column: value for column, value in cell.items() if column not in CELL and value is not None}
    metrics |= {"avg_at_k_low": metrics.pop("ci_low"), "avg_at_k_high": metrics.pop("ci_high")}
    tags = {_TAGS.get(name, name): value for name, value in key.items()}
    return Result(f"{label}/{name}", name, tags, key, metrics)


def _plain(model: str) -> str:
    """A pair's ">" is no character of a metric's name."""
    return model.replace(">", "-then-")
