"""Requests with seeds draw on a CPU what vLLM's own code draws, in half the time that their noise took; and an engine
starts without a process that imports all of vLLM to look at the model's class."""

import os
from pathlib import Path

import pytest

from elastic_core.engines.parameters import EngineParameters
from elastic_core.miniature.warm_start import BASE
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


LOOK = """
import subprocess, sys
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.models import registry

started, run = [], subprocess.run
registry.subprocess.run = lambda command, **given: started.append(command) or run(command, **given)
config = EngineArgs(sys.argv[1], max_model_len=64, enforce_eager=True).create_engine_config()
print(started.count(registry._SUBPROCESS_COMMAND), config.model_config._model_info)
"""


def test_no_process_is_started_to_look_at_a_model(tmp_path: Path) -> None:
    """On a machine where no engine has run yet. What is seen is the same."""
    seen = {}
    for name, variables in (("ours", EngineParameters(device="cpu").environment), ("of others", {})):
        kept = {name: value for name, value in os.environ.items() if name != "ELASTIC_PRIVATE_STORES"}
        environment = {**kept, **variables, "VLLM_CACHE_ROOT": str(tmp_path / name)}
        found = python(LOOK, str(BASE), environment=environment).stdout.splitlines()[-1]
        seen[name] = found.partition(" ")
    assert (seen["ours"][0], seen["of others"][0]) == ("0", "1")
    assert seen["ours"][2] == seen["of others"][2] and "LlamaForCausalLM" in seen["ours"][2]
