"""warm-start: supervised fine-tuning with verl, which makes the base that training starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from flows.data import build_if_missing
from flows.inputs import Inputs
from flows.run import FlowRun
from flows.train_settings import require_chat_template
from tasks.stage import MODEL
from tasks.warm_start import Imitation, fine_tune


@flow(name="warm-start")
def warm_start(
    preset: str = "embedded", overrides: dict[str, Any] | None = None, parent_run: str | None = None
) -> Path:
    """Train the miniature on its warm-start corpus, or fine-tune a model on conversations; returns the Hugging Face
    checkpoint.

    Called as `pipeline` is; `parent_run` is the MLflow run that this one belongs to.
    """
    run = FlowRun.begin(preset, overrides, parent_run)
    sft, imitation = run.settings.warm_start.sft, None
    if sft is not None:
        require_chat_template(run.settings)
        build_if_missing(run, preset, overrides)
    inputs = Inputs(run)
    if sft is not None:
        imitation = Imitation(sft, inputs.initial, *inputs.data.fine_tuning)
    run.perform(fine_tune, inputs.warm_start, imitation)
    return inputs.warm_start.directory / MODEL
