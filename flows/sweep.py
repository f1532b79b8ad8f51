"""sweep: strategies × budgets × benchmarks × models, into the trajectory table; report: figures and text from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from prefect import flow, get_run_logger

from elastic_core.codeforces.rating import split_id
from elastic_core.data.problems import read_problems
from elastic_core.errors import UserError
from elastic_core.fingerprint import hash_files
from elastic_core.sweep.table import SweepTable
from flows.data import build_if_missing
from flows.export import write_cards
from flows.inputs import Inputs
from flows.run import FlowRun
from reports.codeforces import BENCHMARK
from reports.comparison import render_comparison
from reports.summary import COLUMNS
from tasks.report import fetch_standings, write_report
from tasks.stage import TABLE, standings_directory
from tasks.sweep import measure


@flow(name="sweep")
def sweep(preset: str = "embedded", overrides: dict[str, Any] | None = None, parent_run: str | None = None) -> Path:
    """Measure the grid; what the table already holds is not generated again. The models of the preset's own trainings
    get cards that say what was measured of them.

    Args:
        preset: settings to run with.
        overrides: settings to replace, by dotted key.
        parent_run: MLflow run that this one belongs to.

    Returns:
        The directory of the trajectory table.
    """
    run = FlowRun.begin(preset, overrides, parent_run)
    build_if_missing(run, preset, overrides)
    inputs, settings = Inputs(run), run.settings
    inputs.data.require_graders(settings.data.benchmarks)
    run.perform(
        measure, inputs.sweep, settings.engine, settings.ray.running, inputs.checkpoints, inputs.benchmark_files,
        inputs.templates,
    )  # fmt: skip
    write_cards(inputs)
    table = inputs.sweep.directory / TABLE
    asked = pl.col("model").is_in(settings.sweep.models) & inputs.measured_rows
    print(render_comparison(SweepTable(table).scan().filter(asked).select(COLUMNS).collect()))
    return table


@flow(name="report")
def report(preset: str = "embedded", overrides: dict[str, Any] | None = None, parent_run: str | None = None) -> Path:
    """Build the report of a finished sweep; returns the path of report.md, beside which all else lies.

    Called as `pipeline` is; `parent_run` is the MLflow run that this one belongs to.
    """
    run = FlowRun.begin(preset, overrides, parent_run)
    inputs = Inputs(run)
    if not inputs.sweep.marker.exists():
        raise UserError(
            f"no finished sweep at {inputs.sweep.directory}; run first: elastic run sweep --preset {preset}"
        )
    rated = BENCHMARK in run.settings.data.benchmarks
    stage = inputs.report(codeforces_standings(inputs) if rated else None)
    return Path(run.perform(write_report, stage))


def codeforces_standings(inputs: Inputs) -> str:
    """Fetch the standings that ratings are computed from, as far as they can be: the report names the contests that it
    has to do without. Returns a hash of those that are there, so that with more of them it is made again."""
    directory = standings_directory(inputs.run.runs)
    (problems,) = inputs.data.files([BENCHMARK])
    contests = {split_id(problem.id)[0] for problem in read_problems(problems)}
    state = fetch_standings(contests, directory, return_state=True)
    if state.is_failed():
        get_run_logger().warning("standings: %s", state.message)
    return hash_files(directory.glob("*.json"))
