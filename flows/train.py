"""train: GRPO under a budget, as a Ray job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from flows.data import build_if_missing
from flows.inputs import Inputs
from flows.run import FlowRun
from tasks.stage import MODEL
from tasks.train import train_policy


@flow(name="train")
def train(preset: str = "embedded", overrides: dict[str, Any] | None = None, parent_run: str | None = None) -> Path:
    """Train the base model under the budget; returns the trained Hugging Face checkpoint.

    Called as `pipeline` is; `parent_run` is the MLflow run that this one belongs to.
    """
    run = FlowRun.begin(preset, overrides, parent_run)
    parameters, base, data = run.settings.training, Inputs(run).base, run.settings.data
    build_if_missing(run, preset, overrides)
    inputs = Inputs(run)
    inputs.data.require_graders([*data.train, *data.validation])
    run.perform(
        train_policy, inputs.train, parameters, run.settings.ray.running, base,
        inputs.data.files(data.train), inputs.data.files(data.validation),
    )  # fmt: skip
    return inputs.train.directory / MODEL
