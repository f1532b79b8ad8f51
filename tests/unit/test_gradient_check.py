"""What counts as a wrong gradient, in the check that `make gpu` and the tests run."""

import torch

from tests.gpu.gradients import Checked, problems, relative_errors


def checked(error: float, saved: bool = True) -> dict[str, Checked]:
    return {"qwen2 untied": {"errors": {"each": {"lm_head.weight": error, "norm.weight": 1e-8}}, "saved": saved}}


def test_an_error_is_relative_to_the_norm_of_the_gradient() -> None:
    expected = {"weight": torch.tensor([3.0, 4.0])}
    assert relative_errors({"weight": torch.tensor([3.0, 4.0])}, expected) == {"weight": 0.0}
    assert relative_errors({"weight": torch.tensor([0.0, 0.0])}, expected) == {"weight": 1.0}


def test_a_weight_without_a_gradient_is_an_infinite_error() -> None:
    gradient = {"weight": torch.ones(2)}
    assert relative_errors({}, gradient) == relative_errors(gradient, {}) == {"weight": float("inf")}


def test_the_worst_weight_is_named() -> None:
    assert problems(checked(1e-7), "cpu") == []
    (sentence,) = problems(checked(1.01), "cpu")
    assert sentence == (
        "qwen2 untied: the gradient of lm_head.weight is 101.0% wrong (micro-batches communicated: each)"
    )


def test_a_gradient_that_is_no_number_is_wrong() -> None:
    assert len(problems(checked(float("nan")), "cpu")) == 1


def test_kernels_of_a_gpu_may_round_otherwise() -> None:
    assert problems(checked(1e-3), "cuda") == []
    assert len(problems(checked(1e-3), "cpu")) == 1
    assert len(problems(checked(1e-1), "cuda")) == 1


def test_weights_that_saving_changed_are_a_problem() -> None:
    assert problems(checked(0, saved=False), "cpu") == [
        "qwen2 untied: shards that were saved and loaded are not the model"
    ]
