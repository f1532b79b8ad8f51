"""What the check trains, E1-Math-1.5B's preset, shortened, with its model or a twin; and whether it went as it must:
every step, resumed, and with one set of weights in sampler and trainer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from elastic_core.errors import UserError
from elastic_core.models.twins.twin import Size
from elastic_core.training.grpo.step_metrics import AGREEMENT, LEAST_AGREEMENT, STEP, disagrees
from elastic_core.training.launch import FINISHED_STEP
from flows import presets
from flows.commands.rehearsal.preset import Inputs, given_values, rehearsal_values
from flows.runtime.settings import Settings

PRESET = "e1-math-1.5b"
STEPS, KILLED_AFTER = 5, 2
BENCHMARKS = ("aime-2024", "math500")
PROBLEMS, SAMPLES = 30, 4
"""Of both benchmarks together, and of each problem."""
GPU_TWIN = Size(layers=4, width=512, head=128)
"""Larger than a rehearsal's, so that a GPU has something to compute; with the heads of the real model."""
SCORE, GRADIENT, SECONDS = "critic/score/mean", "actor/grad_norm", "timing_s/step"
_RESUMED = re.compile(rf"step:\d+ - {STEP}:\S+\s*$")


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
        return given_values(settings)
    if device == "gpu":
        values = given_values(settings) | {"base": str(twin.model)}
        values["data"] |= {"mirror": str(twin.inputs.mirror)} if twin.inputs.mirror else {}
        return values
    values = rehearsal_values(settings, {settings.base: twin.model}, twin.inputs)
    kept = ("steps", "save_every", "validate_every")
    values["train"] |= {name: getattr(settings.training, name) for name in kept}
    values["train"] |= {"gpus_per_node": 1, "rollout_workers": 1}
    values["engine"] |= {"data_parallel_size": 1}
    values["sweep"] |= {name: getattr(settings.sweep, name) for name in ("problems", "samples")}
    return values


class TrainingStep(NamedTuple):
    """Of one step: mean reward, norm of the gradient, seconds, and how far sampler and trainer agree."""

    step: int
    score: float
    gradient: float
    seconds: float
    agreement: float


def read_steps(metrics: pl.DataFrame) -> list[TrainingStep]:
    """The steps of a training, but for the validation before the first.

    Args:
        metrics: columns step, name, value.

    Raises:
        UserError: when a step lacks one of them.
    """
    values = {(row["step"], row["name"]): float(row["value"]) for row in metrics.iter_rows(named=True)}
    found = []
    for step in sorted({step for step, name in values if name == SCORE}):
        missing = [name for name in (SCORE, GRADIENT, SECONDS, AGREEMENT) if (step, name) not in values]
        if missing:
            raise UserError(f"the training has no metric {', '.join(missing)} of step {step}")
        found.append(TrainingStep(step, *(values[step, name] for name in (SCORE, GRADIENT, SECONDS, AGREEMENT))))
    return found


def judge(steps: list[TrainingStep], expected: int) -> str:
    """What was seen, where all is well.

    Raises:
        UserError: when steps are missing, a gradient is none, or sampler and trainer do not agree.
    """
    numbers = [step.step for step in steps]
    if numbers != list(range(1, expected + 1)):
        raise UserError(f"metrics of steps {numbers} were recorded, expected 1 to {expected}")
    for step in steps:
        if not isfinite(step.gradient):
            raise UserError(f"the norm of the gradient of step {step.step} is {step.gradient}")
        if disagrees(step.agreement):
            raise UserError(
                f"in step {step.step} the probabilities of sampler and trainer correlate by {step.agreement:.3f}, "
                f"expected at least {LEAST_AGREEMENT}: vLLM computes with other weights than the trainer"
            )
    lowest = min(step.agreement for step in steps)
    seconds = ", ".join(f"{step.seconds:.0f}" for step in steps)
    return f"sampler and trainer correlate by {lowest:.4f} or more in every step; seconds a step: {seconds}"


def first_step(log: Path) -> int:
    """The first step that a job finished, by its log. Of the step that it resumed from there is a line with the step's
    number alone.

    Raises:
        UserError: when it finished none.
    """
    lines = [line for line in log.read_text(errors="replace").splitlines() if not _RESUMED.search(line)]
    steps = [int(found[1]) for line in lines if (found := FINISHED_STEP.search(line)) and int(found[1])]
    if not steps:
        raise UserError(f"{log}: no step was finished")
    return steps[0]


def as_rows(steps: list[TrainingStep]) -> list[Mapping[str, str]]:
    """As a table shows them."""
    return [
        {
            "step": str(step.step),
            "mean reward": f"{step.score:.3f}",
            "gradient norm": f"{step.gradient:.3g}",
            "seconds": f"{step.seconds:.1f}",
            "correlation of sampler and trainer": f"{step.agreement:.5f}",
        }
        for step in steps
    ]
