"""Whether a short training went as it must: every step, resumed, and with one set of weights in sampler and trainer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import polars as pl

from elastic_core.errors import UserError
from elastic_core.training.grpo.diagnostics import AGREEMENT, LEAST_AGREEMENT, disagrees
from elastic_core.training.grpo.step_metrics import STEP
from elastic_core.training.launch import FINISHED_STEP

SCORE, GRADIENT, SECONDS = "critic/score/mean", "actor/grad_norm", "timing_s/step"


_RESUMED = re.compile(rf"step:\d+ - {STEP}:\S+\s*$")


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
