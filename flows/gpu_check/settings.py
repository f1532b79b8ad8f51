"""The preset that is trained and measured: that of E1-Math-1.5B, shortened, with its model or a twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.twins.twin import Size
from flows import presets
from flows.rehearsal_settings import Inputs, rehearsal_values
from flows.settings import Settings

PRESET = "e1-math-1.5b"
STEPS, KILLED_AFTER = 5, 2
BENCHMARKS = ("aime-2024", "math500")
PROBLEMS, SAMPLES = 30, 4
"""Of both benchmarks together, and of each problem."""
GPU_TWIN = Size(layers=4, width=512, head=128)
"""Larger than a rehearsal's, so that a GPU has something to compute; with the heads of the real model."""


class Twin(NamedTuple):
    """What takes the place of the model and of its data.

    Attributes:
        model: the twin's directory.
    """

    model: Path
    inputs: Inputs


def shortened(ranks: int, twin: bool) -> Settings:
    """The preset for few GPUs and a short time. Rows that stand in for a data set are too few for its batches.

    Args:
        ranks: GPUs of this machine to train and measure on.
    """
    batch = 8 if twin else 32
    changes = {
        "data.validation": ["aime-2024"],
        "data.benchmarks": list(BENCHMARKS),
        "data.datasets": [],
        "train.steps": STEPS,
        "train.batch_size": batch,
        "train.mini_batch_size": batch // 2,
        "train.save_every": KILLED_AFTER,
        # A checkpoint of the real model takes some 25 GB.
        "train.keep_checkpoints": 1,
        "train.validate_every": STEPS,
        "train.validation_samples": 1,
        "train.gpus_per_node": ranks,
        "train.rollout_workers": 4,
        "engine.data_parallel_size": ranks,
        "sweep.budgets": ["0.5k+1k", "1k+1k"],
        "sweep.problems": PROBLEMS // len(BENCHMARKS),
        "sweep.samples": SAMPLES,
    }
    return presets.resolve(PRESET, changes)


def preset_values(ranks: int, device: str, twin: Twin | None) -> dict[str, Any]:
    """The values of the preset file.

    Args:
        device: "gpu" or "cpu"; on a CPU lengths are those of a rehearsal, in one process.
        twin: None for the real model and its data.
    """
    settings = shortened(ranks, twin is not None)
    if twin is None:
        return _given(settings)
    if device == "gpu":
        values = _given(settings) | {"base": str(twin.model)}
        values["data"] |= {"mirror": str(twin.inputs.mirror)} if twin.inputs.mirror else {}
        return values
    values = rehearsal_values(settings, {settings.base: twin.model}, twin.inputs)
    kept = ("steps", "save_every", "validate_every")
    values["train"] |= {name: getattr(settings.training, name) for name in kept}
    values["train"] |= {"gpus_per_node": 1, "rollout_workers": 1}
    values["engine"] |= {"data_parallel_size": 1}
    values["sweep"] |= {name: getattr(settings.sweep, name) for name in ("problems", "samples")}
    return values


def _given(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude={"preset", "ray", "mlflow"})
