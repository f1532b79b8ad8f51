"""What the budget processors take from vLLM's two runners, as installed."""

import inspect

import pytest
from vllm.v1.sample.logits_processor import LogitsProcessor as OfV1

from elastic_core.engines.budgets import v1


def same_parameters(ours: type, theirs: type) -> None:
    assert not inspect.isabstract(ours)
    for name, method in inspect.getmembers(ours, inspect.isroutine):
        if name in vars(ours):
            assert list(inspect.signature(method).parameters) == list(
                inspect.signature(getattr(theirs, name)).parameters
            ), name


def test_every_method_takes_what_the_v1_runner_gives_it() -> None:
    same_parameters(v1.SeparateBudgets, OfV1)


def test_the_v2_runner_gives_slots_and_lengths_on_the_host() -> None:
    theirs = pytest.importorskip("vllm.v1.worker.gpu.sample.logits_processor", reason="vLLM 0.31 and later")
    from elastic_core.engines.budgets import v2

    same_parameters(v2.SeparateBudgets, theirs.LogitsProcessor)
    assert {"idx_mapping_np", "seq_lens_upper_bound_np"} <= set(theirs.LogitsContext.__dataclass_fields__)
