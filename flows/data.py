"""prepare-data: source files fetched and verified, data sets built as parquet, with a manifest."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from flows.runtime.run import FlowRun, for_deployments
from tasks.data import build_data, fetch_data
from tasks.records.stage_directory import SOURCES


@flow(name="prepare-data", flow_run_name="{run.settings.preset} prepare-data", validate_parameters=False)
def run_prepare_data(run: FlowRun) -> Path:
    """Fetch missing files and build the data sets; returns the directory that holds them."""
    data = run.inputs.data
    fetch_data(data.chosen, run.runs / SOURCES, data.mirror)
    run.forget_inputs()
    data = run.inputs.data
    run.perform(build_data, data.stage, data.build)
    return data.stage.directory


prepare_data = for_deployments(run_prepare_data)


def build_if_missing(run: FlowRun) -> None:
    """Build the data of a flow that needs it, as a separate flow run."""
    if not run.inputs.data.is_built:
        run_prepare_data(run)
