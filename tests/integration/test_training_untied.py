"""The gradient of models as people train them, over two FSDP2 ranks, against the gradient in one process.

An untied output layer is where verl 0.9.1 fails, and where the obvious repair has a wrong gradient (patches.py).
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.two_ranks import TEMPERATURE, rows

FAMILIES = ("qwen2", "qwen3", "llama")
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
}


def gradients_in_one_process(model: Any) -> dict[str, torch.Tensor]:
    """Of the sum of log-probabilities, averaged over the ranks as FSDP does."""
    by_rank = rows(model.config.vocab_size)
    for ids in by_rank.flatten(0, 1):
        log_probs = (model(input_ids=ids).logits / TEMPERATURE).log_softmax(-1)
        # As verl has it: the last position is scored against the first token, and masked later.
        log_probs.gather(-1, ids.roll(-1, -1).unsqueeze(-1)).sum().backward()
    return {name: weight.grad / len(by_rank) for name, weight in model.named_parameters()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    """Directories of models by family and whether they are tied, each with what the two ranks made of it."""
    found = {(family, tied): tmp_path_factory.mktemp("twin") for family in FAMILIES for tied in (False, True)}
    for (family, tied), directory in found.items():
        torch.manual_seed(0)
        config = AutoConfig.for_model(family, **SHAPE, tie_word_embeddings=tied)
        AutoModelForCausalLM.from_config(config).save_pretrained(directory / "model")
    command = [sys.executable, "-m", "tests.two_ranks", *map(str, found.values())]
    ranks = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ranks.returncode == 0, ranks.stderr[-3000:]
    return found


@pytest.mark.parametrize("communicated", ["each", "last"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("family", FAMILIES)
def test_two_ranks_have_the_gradient_of_one_process(
    family: str, tied: bool, communicated: str, models: dict[tuple[str, bool], Path]
) -> None:
    directory = models[family, tied]
    model: Any = AutoModelForCausalLM.from_pretrained(directory / "model", dtype=torch.float32)
    expected, found = gradients_in_one_process(model), torch.load(directory / "gradients.pt")[communicated]
    assert found.keys() == expected.keys() and ("lm_head.weight" in found) is not tied
    for name, gradient in expected.items():
        assert torch.linalg.norm(found[name] - gradient) < 1e-5 * torch.linalg.norm(gradient), name


@pytest.mark.parametrize("family", FAMILIES)
def test_shards_that_were_saved_and_loaded_are_the_model(family: str, models: dict[tuple[str, bool], Path]) -> None:
    directory = models[family, False]
    model: Any = AutoModelForCausalLM.from_pretrained(directory / "model", dtype=torch.float32)
    saved = torch.load(directory / "saved.pt")
    assert all(torch.equal(saved[name], weight) for name, weight in model.state_dict().items())
