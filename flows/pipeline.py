"""pipeline: data → warm start → training under a budget → the grid of budget evaluations → report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from elastic_core.system.ray_cluster import kept_cluster
from flows.data import prepare_data
from flows.report import report
from flows.runtime.inputs import Inputs
from flows.runtime.run import FlowRun
from flows.sweep import sweep
from flows.train import require_chat_template, train, warm_start


@flow(name="pipeline", flow_run_name="{preset} pipeline")
def pipeline(preset: str = "embedded", overrides: dict[str, Any] | None = None) -> Path:
    """Everything, under one MLflow run. After a crash the same call finishes what is missing; after success it does
    nothing and says so.

    Args:
        preset: settings to run with.
        overrides: settings to replace, by dotted key.

    Returns:
        Path of the report.
    """
    run = FlowRun.begin(preset, overrides)
    require_chat_template(run.settings)
    with run.recorded("pipeline") as parent:
        prepare_data(preset, overrides, parent)
        Inputs(run).require_reachable()
        if run.settings.base == "warm-start":
            warm_start(preset, overrides, parent)
        with kept_cluster():
            if run.settings.train is not None:
                train(preset, overrides, parent)
            sweep(preset, overrides, parent)
        return report(preset, overrides, parent)
