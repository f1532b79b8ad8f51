"""sweep: strategies × budgets × benchmarks × models, into the trajectory table. report: figures and text from it."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
from prefect import flow, get_run_logger

from elastic_core.data.problems import read_problems
from elastic_core.errors import UserError
from elastic_core.rewards.codeforces import split_id
from elastic_core.statistics.estimates import seeds_as_one
from elastic_core.sweep.table import SweepTable
from elastic_core.system.fingerprint import hash_files
from flows.data import run_prepare_data
from flows.runtime.run import FlowRun, for_deployments
from reports.comparison import render_comparison
from reports.summary import READ
from reports.tables.codeforces import BENCHMARK
from tasks.records.stage_directory import PAGE, REPORT, STANDINGS, TABLE
from tasks.records.tables import sound_rows
from tasks.records.terminal import print_result
from tasks.report import fetch_standings, write_report
from tasks.sweep import measure


@flow(name="sweep", flow_run_name="{run.settings.preset} sweep", validate_parameters=False)
def run_sweep(run: FlowRun) -> Path:
    """Measure the grid; rows of the table are not generated again. The models of the
    preset's trainings get cards with their measurements. Returns the directory of the trajectory table."""
    measure_grid(run)
    # A pipeline ends with its report.
    (print_result if run.parent is None else print)(conclusion(run))
    return run.sweep.directory / TABLE


sweep = for_deployments(run_sweep)


def conclusion(run: FlowRun) -> str:
    """Write the cards of a finished sweep's models, and return their comparison."""
    run.cards.write_all(run.checkpoints.values(), run.tracker)
    return render_comparison(seeds_as_one(measured_cells(run)))


def measure_grid(run: FlowRun) -> None:
    """Measure the grid of a run's settings, with its data built."""
    if not run.data.is_done:
        run_prepare_data(run)
    settings = run.settings
    run.require_graders(settings.data.benchmarks)
    run.require_reachable()
    run.perform(
        measure, run.sweep, settings.engine, settings.ray.running, run.checkpoints, run.benchmark_files,
        run.templates, run.endpoints,
    )  # fmt: skip


def measured_cells(run: FlowRun) -> pl.DataFrame:
    """Rows of the table that the settings ask for: it may hold more."""
    asked = pl.col("model").is_in(run.settings.measured) & run.measured_rows
    return sound_rows(SweepTable(run.sweep.directory / TABLE), READ, asked)


@flow(name="report", flow_run_name="{run.settings.preset} report", validate_parameters=False)
def run_report(run: FlowRun) -> Path:
    """Build the report of a finished sweep; returns the path of report.md, in the directory of all its files."""
    if not run.sweep.is_done:
        raise UserError(f"no finished sweep at {run.sweep.directory}; run first: {run.command('sweep')}")
    rated = BENCHMARK in run.settings.data.benchmarks
    stage = run.report(_codeforces_standings(run) if rated else None)
    run.perform(write_report, stage)
    return stage.directory / REPORT


report = for_deployments(run_report)


def closing(report: Path) -> str:
    """The verdict of a report.md, what to run next, and the page to open."""
    _, verdict, settings, *_ = report.read_text().split("\n\n")
    commands = dict.fromkeys(re.findall(r"^- .* Next: `(.+)`$", settings, re.MULTILINE))
    return "\n".join([verdict.strip("*"), *(f"Next: {command}" for command in commands), str(report.with_name(PAGE))])


def _codeforces_standings(run: FlowRun) -> str:
    """Fetch the standings that ratings are computed from; the report names the contests without any. Returns a hash of
    those that are there: with more of them the report is made again."""
    directory = run.runs / STANDINGS
    (problems,) = run.data_files([BENCHMARK])
    contests = {split_id(problem.id)[0] for problem in read_problems(problems)}
    state = fetch_standings(contests, directory, return_state=True)
    if state.is_failed():
        get_run_logger().warning("standings: %s", state.message)
    return hash_files(directory.glob("*.json"))
