"""What the budget processors take from vLLM's two runners, as installed."""

import inspect

import pytest
from vllm.v1.sample.logits_processor import LogitsProcessor as OfV1
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as OfV2

from elastic_core.engines.budgets import v1, v2


@pytest.mark.parametrize(("ours", "theirs"), [(v1.SeparateBudgets, OfV1), (v2.SeparateBudgets, OfV2)])
def test_every_method_takes_what_the_runner_gives_it(ours: type, theirs: type) -> None:
    assert not inspect.isabstract(ours)
    for name, method in inspect.getmembers(ours, inspect.isroutine):
        if name in vars(ours):
            assert list(inspect.signature(method).parameters) == list(
                inspect.signature(getattr(theirs, name)).parameters
            ), name


def test_the_second_runner_says_slots_and_lengths_on_the_host() -> None:
    assert {"idx_mapping_np", "seq_lens_upper_bound_np"} <= set(LogitsContext.__dataclass_fields__)
