"""Requests with seeds draw on a CPU what vLLM's own code draws, in half the time that their noise took; and an engine
starts without a process that imports all of vLLM to look at the model's class."""

import os

import pytest

from elastic_core.engines.parameters import EngineParameters
from elastic_core.miniature.warm_start import BASE
from tests.processes import python

PROGRAM = """
import subprocess, sys
import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.models import registry
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

started, run = [], subprocess.run
registry.subprocess.run = lambda command, **given: started.append(command) or run(command, **given)
config = EngineArgs(sys.argv[1], max_model_len=64, enforce_eager=True).create_engine_config()
print([tokens for tokens, _ in before] == [tokens for tokens, _ in after])
print([untouched for _, untouched in before], [untouched for _, untouched in after])
print(started.count(registry._SUBPROCESS_COMMAND), config.model_config._model_info)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, list[str]]:
    """What the program says under our environment and without it, where no engine has run yet."""
    kept = {name: value for name, value in os.environ.items() if name != "ELASTIC_PRIVATE_STORES"}
    found = {}
    for ours in (True, False):
        variables = EngineParameters(device="cpu").environment if ours else {}
        environment = {**kept, **variables, "VLLM_CACHE_ROOT": str(tmp_path_factory.mktemp("cache"))}
        found[ours] = python(PROGRAM, str(BASE), environment=environment).stdout.splitlines()[-3:]
    return found


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "of others"])
def test_the_noise_of_seeded_requests_is_drawn_once(said: dict[bool, list[str]], ours: bool) -> None:
    """The batch's own generator stands still where every request has one."""
    assert said[ours][:2] == ["True", f"[False, False] [{ours}, False]"]


def test_no_process_is_started_to_look_at_a_model(said: dict[bool, list[str]]) -> None:
    """What is seen is the same."""
    (ours, seen), (others, seen_by_others) = (said[each][2].split(" ", 1) for each in (True, False))
    assert (ours, others) == ("0", "1")
    assert seen == seen_by_others and "LlamaForCausalLM" in seen
