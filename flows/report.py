"""report: figures and text from the trajectory table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger

from elastic_core.data.problems import read_problems
from elastic_core.errors import UserError
from elastic_core.rewards.codeforces.rating import split_id
from elastic_core.system.fingerprint import hash_files
from flows.runtime.inputs import Inputs
from flows.runtime.run import FlowRun
from reports.tables.codeforces import BENCHMARK
from tasks.records.stage_directory import PAGE, STANDINGS
from tasks.report import fetch_standings, write_report


@flow(name="report", flow_run_name="{preset} report")
def report(preset: str = "embedded", overrides: dict[str, Any] | None = None, parent_run: str | None = None) -> Path:
    """Build the report of a finished sweep; returns the path of report.md, beside which all else lies.

    Called as `pipeline` is; `parent_run` is the MLflow run that this one belongs to.
    """
    run = FlowRun.begin(preset, overrides, parent_run)
    inputs = Inputs(run)
    if not inputs.sweep.marker.exists():
        raise UserError(f"no finished sweep at {inputs.sweep.directory}; run first: {run.command('sweep')}")
    rated = BENCHMARK in run.settings.data.benchmarks
    stage = inputs.report(codeforces_standings(inputs) if rated else None)
    return Path(run.perform(write_report, stage))


def closing(report: Path) -> str:
    """What a command ends with that made a report: its verdict, and the page to open.

    Args:
        report: its report.md.
    """
    _, verdict, *_ = report.read_text().split("\n\n")
    return f"{verdict.strip('*')}\n{report.with_name(PAGE)}"


def codeforces_standings(inputs: Inputs) -> str:
    """Fetch the standings that ratings are computed from, as far as they can be: the report names the contests that it
    has to do without. Returns a hash of those that are there, so that with more of them it is made again."""
    directory = inputs.run.runs / STANDINGS
    (problems,) = inputs.data.files([BENCHMARK])
    contests = {split_id(problem.id)[0] for problem in read_problems(problems)}
    state = fetch_standings(contests, directory, return_state=True)
    if state.is_failed():
        get_run_logger().warning("standings: %s", state.message)
    return hash_files(directory.glob("*.json"))
