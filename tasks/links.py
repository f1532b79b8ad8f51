"""Links between the pages of Prefect and MLflow."""

from __future__ import annotations

from prefect.artifacts import create_link_artifact

from tasks.tracking import Tracker


def link_run(tracker: Tracker, run_id: str, key: str) -> None:
    """The page of an MLflow run, among the artifacts of this flow run. A bare database has no pages."""
    if tracker.tracking_uri.startswith("http"):
        page = f"{tracker.tracking_uri}/#/experiments/{tracker.experiment_id}/runs/{run_id}"
        create_link_artifact(page, "MLflow run", key=key, description="Its metrics, charts and artifacts in MLflow")
