"""Requests with seeds draw on a CPU what vLLM's own code draws, in half the time that their noise took."""

import os

import pytest

from elastic_core.engines.parameters import EngineParameters
from tests.processes import python

PROGRAM = """
import torch
from vllm.v1.sample.ops import topk_topp_sampler as ops
from elastic_core.engines.seeded_noise import install_in_vllm

logits = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
batch = torch.get_rng_state()

def drawn(seeds):
    generators = {row: torch.Generator().manual_seed(seed) for row, seed in seeds.items()}
    torch.set_rng_state(batch)
    tokens, _ = ops.TopKTopPSampler()(logits.clone(), generators, None, None)
    return tokens.tolist(), torch.equal(torch.get_rng_state(), batch)

cases = [{0: 5, 1: 6, 2: 7, 3: 8}, {1: 6}]
before = [drawn(seeds) for seeds in cases]
install_in_vllm()
after = [drawn(seeds) for seeds in cases]
print([tokens for tokens, _ in before] == [tokens for tokens, _ in after])
print([untouched for _, untouched in before], [untouched for _, untouched in after])
"""


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "of others"])
def test_the_noise_of_seeded_requests_is_drawn_once(ours: bool) -> None:
    """The batch's own generator stands still where every request has one."""
    variables = EngineParameters(device="cpu").environment if ours else {}
    environment = {name: value for name, value in os.environ.items() if name != "ELASTIC_PRIVATE_STORES"} | variables
    found = python(PROGRAM, environment=environment)
    assert found.stdout.split("\n")[-3:-1] == ["True", f"[False, False] [{ours}, False]"]
