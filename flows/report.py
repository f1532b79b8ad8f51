"""report: figures and text from the trajectory table."""

from __future__ import annotations

from pathlib import Path

from prefect import flow, get_run_logger

from elastic_core.data.problems import read_problems
from elastic_core.errors import UserError
from elastic_core.rewards.codeforces import split_id
from elastic_core.system.fingerprint import hash_files
from flows.runtime.inputs import Inputs
from flows.runtime.run import FlowRun, for_deployments
from reports.tables.codeforces import BENCHMARK
from tasks.records.stage_directory import PAGE, STANDINGS
from tasks.report import fetch_standings, write_report


@flow(name="report", flow_run_name="{run.settings.preset} report", validate_parameters=False)
def run_report(run: FlowRun) -> Path:
    """Build the report of a finished sweep; returns the path of report.md, beside which all else lies."""
    inputs = run.inputs
    if not inputs.sweep.marker.exists():
        raise UserError(f"no finished sweep at {inputs.sweep.directory}; run first: {run.command('sweep')}")
    rated = BENCHMARK in run.settings.data.benchmarks
    stage = inputs.report(codeforces_standings(inputs) if rated else None)
    return Path(run.perform(write_report, stage))


report = for_deployments(run_report)


def closing(report: Path) -> str:
    """What a command ends with that made a report: its verdict, and the page to open.

    Args:
        report: its report.md.
    """
    _, verdict, *_ = report.read_text().split("\n\n")
    return f"{verdict.strip('*')}\n{report.with_name(PAGE)}"


def codeforces_standings(inputs: Inputs) -> str:
    """Fetch the standings that ratings are computed from; the report names the contests without any. Returns a hash of
    those that are there: with more of them the report is made again."""
    directory = inputs.run.runs / STANDINGS
    (problems,) = inputs.data.files([BENCHMARK])
    contests = {split_id(problem.id)[0] for problem in read_problems(problems)}
    state = fetch_standings(contests, directory, return_state=True)
    if state.is_failed():
        get_run_logger().warning("standings: %s", state.message)
    return hash_files(directory.glob("*.json"))
