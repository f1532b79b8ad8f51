"""pipeline: data → warm start → training under a budget → the grid of budget evaluations → report."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from elastic_core.system.ray_cluster import kept_cluster
from flows.data import run_prepare_data
from flows.runtime.run import FlowRun, for_deployments
from flows.sweep import run_report, run_sweep
from flows.train import require_chat_template, run_train, run_warm_start


@flow(name="pipeline", flow_run_name="{run.settings.preset} pipeline", validate_parameters=False)
def run_pipeline(run: FlowRun) -> Path:
    """Everything, under one MLflow run; returns the path of the report. After a crash the same call finishes what is
    missing; after success it does nothing and says so."""
    require_chat_template(run.settings)
    with run.recorded("pipeline") as run:
        run_prepare_data(run)
        run.inputs.require_reachable()
        if run.settings.base == "warm-start":
            run_warm_start(run)
        with kept_cluster():
            if run.settings.train is not None:
                run_train(run)
            run_sweep(run)
        return run_report(run)


pipeline = for_deployments(run_pipeline)
