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
    fetch_data(run.datasets, run.runs / SOURCES, run.mirror)
    run.forget_data()
    run.perform(build_data, run.data, run.build)
    return run.data.directory


prepare_data = for_deployments(run_prepare_data)
