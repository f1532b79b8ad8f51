"""prepare-data: source files fetched and verified, data sets built as parquet, with a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from flows import environment, presets
from flows.data_sources import chosen_datasets, data_build, data_stage, mirror
from flows.run import FlowRun
from tasks.data import build_data, fetch_data, sources_directory


@flow(name="prepare-data")
def prepare_data(
    preset: str = "embedded", overrides: dict[str, Any] | None = None, parent_run: str | None = None
) -> Path:
    """Fetch what is missing and build the data sets.

    Args:
        preset: settings to run with.
        overrides: settings to replace, by dotted key.
        parent_run: MLflow run that this one belongs to.

    Returns:
        The directory that holds them.
    """
    run = FlowRun.begin(preset, overrides, parent_run)
    fetch_data(chosen_datasets(run), sources_directory(run.runs), mirror(run))
    stage = data_stage(run)
    run.perform(build_data, stage, run.tracker, run.parent, data_build(run))
    return stage.directory


def finished(preset: str, overrides: dict[str, Any]) -> Path | None:
    """Where the data sets lie, when all of them are built; asked before a server is started for nothing."""
    run = FlowRun(presets.resolve(preset, overrides), environment.runs_directory(), given=preset)
    stage = data_stage(run)
    return stage.directory if stage.marker.exists() else None
