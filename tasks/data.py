"""Fetching and building the data sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from elastic_core.data.build import DataBuild, build
from elastic_core.data.dataset import Dataset
from elastic_core.data.fetch import fetch
from elastic_core.data.problems import MANIFEST
from tasks.records.mlflow_tracker import Tracker
from tasks.records.stage_directory import BUILT, Stage, worth_retrying
from tasks.records.terminal import progress


@task(name="fetch-data", cache_policy=NO_CACHE)
def fetch_data(datasets: Sequence[Dataset], sources: Path, mirror: Path | None) -> None:
    """Have every source file, verified. Requests are retried one by one, so the task itself is not."""
    fetched = fetch([entry for entry in datasets if entry.files], sources=sources, mirror=mirror)
    files = [file for dataset in fetched.values() for file in dataset.files]
    size = sum(file.bytes for file in files) / 1e6
    get_run_logger().info("%d source files of %d data sets, %.1f MB, verified", len(files), len(fetched), size)


@task(name="build-data", retries=2, retry_delay_seconds=1, retry_condition_fn=worth_retrying)
def build_data(stage: Stage, tracker: Tracker, parent: str | None, plan: DataBuild) -> dict[str, Any]:
    """Parquet files and their manifest in the stage's directory; a data set of each in MLflow."""
    params = {key: value for key, value in stage.inputs.items() if key != "sources"}
    with tracker.stage(stage, parent, params) as run_id:
        with progress("data", 2 * len(plan.datasets), "tables") as shown:
            manifest = build(plan, stage.prepare(), lambda _: shown.reach(shown.done + 1), stage.runs / BUILT)
        tracker.log_datasets(run_id, manifest, stage.directory)
        tracker.client.log_artifact(run_id, str(stage.directory / MANIFEST))
        rows = {f"rows/{name}": entry["kept_rows"] for name, entry in manifest["datasets"].items()}
        tracker.log(run_id, metrics=rows)
    table = [
        {
            "data set": name,
            "split": entry["split"],
            "rows": entry["rows"],
            "kept": entry["kept_rows"],
            **{f"removed: {reason}": entry["removed"].get(reason, 0) for reason in ("exact", "13-gram", "too long")},
            "duplicates": entry["duplicates"],
            "near-empty": entry["near_empty"],
            "median prompt tokens": entry["prompt_tokens"]["median"] if entry["prompt_tokens"] else None,
            "source": entry["source"],
            "revision": entry["revision"],
            "licence": entry["licence"],
        }
        for name, entry in manifest["datasets"].items()
    ]
    create_table_artifact(table, key="data-sets", description=f"Data sets of {stage.label}")
    return {"manifest": str(stage.directory / MANIFEST), "mlflow_run": run_id, "rows": rows}
