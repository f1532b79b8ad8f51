"""prepare-data: source files fetched and verified, data sets built as parquet, with a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from flows.runtime.data_inputs import DataInputs
from flows.runtime.run import FlowRun
from tasks.data import build_data, fetch_data
from tasks.records.stage_directory import SOURCES


@flow(name="prepare-data", flow_run_name="{preset} prepare-data")
def prepare_data(
    preset: str = "embedded", overrides: dict[str, Any] | None = None, parent_run: str | None = None
) -> Path:
    """Fetch what is missing and build the data sets; returns the directory that holds them.

    Called as `pipeline` is; `parent_run` is the MLflow run that this one belongs to.
    """
    run = FlowRun.begin(preset, overrides, parent_run)
    before = DataInputs(run)
    fetch_data(before.chosen, run.runs / SOURCES, before.mirror)
    data = DataInputs(run)
    run.perform(build_data, data.stage, data.build)
    return data.stage.directory


def build_if_missing(run: FlowRun, preset: str, overrides: dict[str, Any] | None) -> None:
    """For a flow that needs data, as a flow run of its own."""
    if not DataInputs(run).is_built:
        prepare_data(preset, overrides, run.parent)
