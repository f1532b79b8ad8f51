"""report: figures, tables and a Markdown report from the trajectory table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger

from elastic_core.codeforces.rating import split_id
from elastic_core.data.problems import read_problems
from elastic_core.errors import UserError
from elastic_core.fingerprint import hash_files
from flows.data_sources import data_files
from flows.run import FlowRun
from flows.stages import sweep_stage
from reports.codeforces import BENCHMARK
from tasks.report import write_report
from tasks.stage import TABLE
from tasks.standings import fetch_standings, standings_directory


@flow(name="report")
def report(preset: str = "embedded", overrides: dict[str, Any] | None = None, parent_run: str | None = None) -> Path:
    """Build the report of a finished sweep.

    Args:
        preset: settings to run with.
        overrides: settings to replace, by dotted key.
        parent_run: MLflow run that this one belongs to.

    Returns:
        Path of report.md; summary.json, figures and tables lie beside it.
    """
    run = FlowRun.begin(preset, overrides, parent_run)
    swept = sweep_stage(run)
    if not swept.marker.exists():
        raise UserError(f"no finished sweep at {swept.directory}; run first: elastic run sweep --preset {preset}")
    table = swept.directory / TABLE
    rated = BENCHMARK in run.settings.data.benchmarks
    stage = run.stage(
        "report",
        {},
        {
            "table": str(table),
            "contents": hash_files(table.glob("*.parquet")),
            "codeforces": codeforces_standings(run) if rated else None,
            "provenance": {"preset": preset, **swept.inputs},
            "settings": run.settings.model_dump(mode="json"),
        },
    )
    return Path(run.perform(write_report, stage, run.tracker, run.parent))


def codeforces_standings(run: FlowRun) -> str:
    """Fetch the standings that ratings are computed from, as far as they can be: the report names the contests that it
    has to do without. Returns a hash of those that are there, so that with more of them it is made again."""
    directory = standings_directory(run.runs)
    (problems,) = data_files(run, [BENCHMARK])
    contests = {split_id(problem.id)[0] for problem in read_problems(problems)}
    state = fetch_standings(contests, directory, return_state=True)
    if state.is_failed():
        get_run_logger().warning("standings: %s", state.message)
    return hash_files(directory.glob("*.json"))
