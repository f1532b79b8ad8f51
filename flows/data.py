"""prepare-data: training, validation and benchmark problems as parquet, with a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from flows.run import FlowRun
from flows.stages import data_stage
from tasks.data import build_data


@flow(name="prepare-data")
def prepare_data(preset: str = "embedded", overrides: dict[str, Any] | None = None) -> Path:
    """Build the data sets.

    Args:
        preset: settings to run with.
        overrides: settings to replace, by dotted key.

    Returns:
        The directory that holds them.
    """
    run = FlowRun.begin(preset, overrides)
    stage = data_stage(run)
    run.perform(build_data, stage)
    return stage.directory
