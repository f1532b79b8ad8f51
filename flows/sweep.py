"""sweep: strategies × budgets × benchmarks × models, into the trajectory table."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from prefect import flow

from elastic_core.statistics.estimates import seeds_as_one
from elastic_core.sweep.table import SweepTable
from flows.commands.export import write_cards
from flows.data import build_if_missing
from flows.runtime.inputs import Inputs
from flows.runtime.run import FlowRun, for_deployments
from reports.comparison import render_comparison
from reports.summary import report_rows
from tasks.records.stage_directory import TABLE
from tasks.records.terminal import print_result
from tasks.sweep import measure


@flow(name="sweep", flow_run_name="{run.settings.preset} sweep", validate_parameters=False)
def run_sweep(run: FlowRun) -> Path:
    """Measure the grid; what the table already holds is not generated again. The models of the preset's own trainings
    get cards that say what was measured of them. Returns the directory of the trajectory table."""
    inputs = measure_grid(run)
    # In a pipeline the report is what is looked for.
    (print_result if run.parent is None else print)(conclusion(inputs))
    return inputs.sweep.directory / TABLE


sweep = for_deployments(run_sweep)


def conclusion(inputs: Inputs) -> str:
    """What a finished sweep ends with: the cards of its models are written, and they are compared."""
    write_cards(inputs)
    return render_comparison(seeds_as_one(measured_cells(inputs)))


def measure_grid(run: FlowRun) -> Inputs:
    """Have the grid of a run's settings measured, and its data built."""
    build_if_missing(run)
    inputs, settings = run.inputs, run.settings
    inputs.data.require_graders(settings.data.benchmarks)
    inputs.require_reachable()
    run.perform(
        measure, inputs.sweep, settings.engine, settings.ray.running, inputs.checkpoints, inputs.benchmark_files,
        inputs.templates, inputs.endpoints,
    )  # fmt: skip
    return inputs


def measured_cells(inputs: Inputs) -> pl.DataFrame:
    """Rows of the table that the settings ask for: it may hold more."""
    asked = pl.col("model").is_in(inputs.run.settings.models) & inputs.measured_rows
    return report_rows(SweepTable(inputs.sweep.directory / TABLE).scan().filter(asked)).collect()
