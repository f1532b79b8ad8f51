"""train: GRPO under a budget, as a Ray job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from flows.data import prepare_data
from flows.data_sources import data_files, data_stage, require_graders
from flows.run import FlowRun
from flows.stages import base_model, train_stage
from tasks.stage import MODEL
from tasks.train import train_policy


@flow(name="train")
def train(preset: str = "embedded", overrides: dict[str, Any] | None = None, parent_run: str | None = None) -> Path:
    """Train the base model under the budget.

    Args:
        preset: settings to run with.
        overrides: settings to replace, by dotted key.
        parent_run: MLflow run that this one belongs to.

    Returns:
        The trained Hugging Face checkpoint.
    """
    run = FlowRun.begin(preset, overrides, parent_run)
    parameters, base = run.settings.training, base_model(run)
    if not data_stage(run).marker.exists():
        prepare_data(preset, overrides, parent_run)
    require_graders(run, [*run.settings.data.train, *run.settings.data.validation])
    stage = train_stage(run)
    run.perform(
        train_policy, stage, run.tracker, run.parent, parameters, run.settings.ray.running, base,
        data_files(run, run.settings.data.train), data_files(run, run.settings.data.validation),
    )  # fmt: skip
    return stage.directory / MODEL
