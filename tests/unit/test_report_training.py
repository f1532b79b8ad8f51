"""What a report says of how a model was trained."""

import polars as pl
import pytest

from elastic_core.budget import TrainingBudget
from reports.content import Training


def trained(equal: list[float]) -> Training:
    """Eight groups a step, so many of them with equal rewards."""
    points = [
        row
        for step, value in enumerate(equal, 1)
        for row in ((step, "rollout/groups", 8.0), (step, "rollout/groups_without_variance", value))
    ]
    metrics = pl.DataFrame(points, schema=["step", "name", "value"], orient="row")
    return Training(TrainingBudget.parse("48+32"), asks_length=False, base="base", metrics=metrics)


@pytest.mark.parametrize("equal", [[], [8, 0], [7, 7, 7], [8, 7, 0]])
def test_a_training_that_learned_in_half_of_its_steps_needs_no_remark(equal: list[float]) -> None:
    assert trained(equal).idle("trained") == ""


def test_idle_steps_are_counted() -> None:
    assert trained([8, 8, 3]).idle("trained").startswith("In 2 of 3 training steps of trained ")


def test_without_a_record_nothing_is_said() -> None:
    assert Training(TrainingBudget.parse("48+32"), asks_length=False, base=None, metrics=None).idle("trained") == ""
