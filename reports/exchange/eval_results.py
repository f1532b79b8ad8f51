"""Evaluation results of the Hugging Face Hub: YAML files for `.eval_results/` of a model's repository, one for each
cell of a benchmark that lies on the Hub. Which to publish is a person's choice: a leaderboard has one number."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.budget import Budget
from elastic_core.files import write_text
from reports.content import ReportSources
from reports.exchange import file_name, hub_data, setup

FOLDER = ".eval_results"


def write_results(summary: pl.DataFrame, sources: ReportSources, when: datetime, directory: Path) -> list[Path]:
    """Write MODEL/.eval_results/BENCHMARK_STRATEGY_BUDGET.yaml below `directory`.

    Args:
        summary: the cells.
        when: they were measured.
    """
    import yaml

    hub, files = hub_data(sources), []
    for cell in summary.filter(pl.col("benchmark").is_in(list(hub))).iter_rows(named=True):
        budget = Budget(cell["think_budget"], cell["solution_budget"])
        name = file_name("_".join([cell["benchmark"], cell["strategy"], str(budget)]))
        file = directory / file_name(cell["model"]) / FOLDER / f"{name}.yaml"
        write_text(file, yaml.safe_dump(entries_of(cell, *hub[cell["benchmark"]], when), sort_keys=False))
        files.append(file)
    return files


def entries_of(cell: Mapping[str, Any], repository: str, revision: str | None, when: datetime) -> list[dict[str, Any]]:
    """What one file holds: accuracy in percent, and in the notes the budget and all else that it depends on. The task
    is called as the benchmark is here; a leaderboard may call it otherwise."""
    return [
        {
            "dataset": {"id": repository, "task_id": cell["benchmark"], **({"revision": revision} if revision else {})},
            "value": round(100 * cell["avg_at_k"], 2),
            "date": when.date().isoformat(),
            "notes": setup(cell),
        }
    ]
