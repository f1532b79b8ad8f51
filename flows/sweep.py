"""sweep: strategies × budgets × benchmarks × models, into the trajectory table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from prefect import flow

from elastic_core.sweep.store import TrajectoryStore
from flows.data import prepare_data
from flows.data_sources import data_stage, require_graders
from flows.export import write_cards
from flows.run import FlowRun
from flows.stages import benchmark_files, checkpoints, measured_rows, sweep_stage, sweep_templates
from reports.comparison import render_comparison
from reports.summary import COLUMNS
from tasks.stage import TABLE
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
    if not data_stage(run).marker.exists():
        prepare_data(preset, overrides, parent_run)
    require_graders(run, run.settings.data.benchmarks)
    stage = sweep_stage(run)
    settings = run.settings
    run.perform(
        measure, stage, run.tracker, run.parent, settings.engine, settings.ray.running, checkpoints(run),
        benchmark_files(run), sweep_templates(run),
    )  # fmt: skip
    write_cards(run)
    table = stage.directory / TABLE
    asked = pl.col("model").is_in(settings.sweep.models) & measured_rows(run)
    print(render_comparison(TrajectoryStore(table).scan().filter(asked).select(COLUMNS).collect()))
    return table
