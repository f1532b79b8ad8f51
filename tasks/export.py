"""The last and the best checkpoint of a training as models: Hugging Face format, model card, MLflow's registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elastic_core.data.problems import MANIFEST
from elastic_core.training import model_card
from elastic_core.training.checkpoints import best_checkpoint, checkpoint_step, latest_checkpoint, validation_of
from elastic_core.training.export import export
from tasks.stage import BEST, MODEL, Stage
from tasks.tracking import Tracker


def publish(stage: Stage, tracker: Tracker, run_id: str, checkpoints: Path, base: Path, data: Path) -> None:
    """Leave MODEL and, where there was validation, BEST in the stage's directory, both registered in MLflow.

    Args:
        base: the model that training started from.
        data: directory of the built data.
    """
    best = best_checkpoint(checkpoints)
    found = {MODEL: ("last", latest_checkpoint(checkpoints)), BEST: ("best", best)}
    for directory, (name, checkpoint) in found.items():
        if checkpoint is None:
            continue
        model = export(checkpoint, stage.directory / directory)
        record = _record(stage, run_id, name, checkpoint, base, data)
        model_card.write(model, record)
        tags = {"stage": stage.label, "step": str(record["step"]), "data_manifest": record["data_manifest"]}
        tracker.register(f"elastic-{stage.preset}", name, model, run_id, tags)


def _record(
    stage: Stage, run_id: str, name: str, checkpoint: Path, base: Path, data: Path
) -> model_card.TrainingRecord:
    validation = validation_of(checkpoint)
    inputs: dict[str, Any] = stage.inputs
    return {
        "preset": stage.preset,
        "checkpoint": name,
        "step": checkpoint_step(checkpoint),
        "accuracy": validation.accuracy if validation else None,
        "samples": validation.samples if validation else None,
        "base": f"{base} ({inputs['base']})",
        "train": inputs["train"],
        "data": {name: inputs[name] for name in ("train_data", "validation_data")},
        "data_manifest": str(data / MANIFEST),
        "mlflow_run": run_id,
    }
