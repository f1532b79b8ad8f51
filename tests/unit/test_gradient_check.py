"""What counts as a wrong gradient, in the check that `make gpu` and the tests run."""

import torch

from tests.gpu.gradients import Checked, problems, relative_errors


def checked(error: float, saved: bool = True) -> dict[str, Checked]:
    return {"qwen2 untied": {"errors": {"each": {"lm_head.weight": error, "norm.weight": 1e-8}}, "saved": saved}}


def test_an_error_is_relative_to_the_norm_of_the_gradient() -> None:
    expected = {"weight": torch.tensor([3.0, 4.0])}
    assert relative_errors({"weight": torch.tensor([3.0, 4.0])}, expected) == {"weight": 0.0}
    assert relative_errors({"weight": torch.tensor([0.0, 0.0])}, expected) == {"weight": 1.0}
    infinite = {"weight": float("inf")}
    assert relative_errors({}, expected) == relative_errors(expected, {}) == infinite, "a weight without a gradient"


def test_the_worst_weight_is_named() -> None:
    assert problems(checked(1e-7), "cpu") == []
    (sentence,) = problems(checked(1.01), "cpu")
    assert sentence == (
        "qwen2 untied: the gradient of lm_head.weight is 101.0% wrong (micro-batches communicated: each)"
    )
    assert len(problems(checked(float("nan")), "cpu")) == 1
    saved = problems(checked(0, saved=False), "cpu")
    assert saved == ["qwen2 untied: shards that were saved and loaded are not the model"]


def test_kernels_of_a_gpu_may_round_otherwise() -> None:
    assert problems(checked(1e-3), "cuda") == []
    assert len(problems(checked(1e-3), "cpu")) == 1
    assert len(problems(checked(1e-1), "cuda")) == 1
