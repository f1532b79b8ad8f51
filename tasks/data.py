"""Building the data sets."""

from __future__ import annotations

from typing import Any

from prefect import task

from elastic_core.data.build import Manifest, build_miniature
from tasks.stage import Stage, worth_retrying


@task(name="build-data", retries=2, retry_delay_seconds=1, retry_condition_fn=worth_retrying)
def build_data(stage: Stage) -> Manifest:
    """Parquet files and their manifest in the stage's directory."""
    settings: dict[str, Any] = stage.inputs["data"]
    return build_miniature(
        stage.prepare(),
        num_train=settings["num_train"],
        hard_fraction=settings["hard_fraction"],
        seed=settings["seed"],
        problems_per_benchmark=settings["problems_per_benchmark"],
        evaluation_seed=settings["evaluation_seed"],
    )
