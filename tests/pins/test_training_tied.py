"""Weights of a tied model that verl sends in buckets, of which vLLM loads each by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
import torch
from torch import nn

EMBEDDING, LAYER, HEAD = "model.embed_tokens.weight", "model.layer.weight", "lm_head.weight"


def tied_model() -> nn.Module:
    """With vLLM's embedding and loader, as its models are built."""
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
    from vllm.model_executor.models.utils import AutoWeightsLoader

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # Its own __init__ asks for the ranks of an engine.
            embedding = VocabParallelEmbedding.__new__(VocabParallelEmbedding)
            nn.Module.__init__(embedding)
            embedding.weight = nn.Parameter(torch.zeros(4, 2), requires_grad=False)
            self.model = nn.ModuleDict({"embed_tokens": embedding, "layer": nn.Linear(2, 2, bias=False)})
            self.lm_head = embedding

        def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
            return AutoWeightsLoader(self).load_weights(weights)

    return Tied()


def load(model: nn.Module, *buckets: list[str]) -> None:
    """As verl's worker does once a bucket is there."""
    import verl  # noqa: F401  loads our plugin
    from verl.workers.rollout.vllm_rollout import utils

    worker = SimpleNamespace(
        model_runner=SimpleNamespace(model=model, vllm_config=SimpleNamespace(quant_config=None)),
        _iter_all_models=lambda: [model],
        _apply_buffer_updates_all_models=lambda *_: 0,
    )
    shapes = {EMBEDDING: (4, 2), LAYER: (2, 2), HEAD: (4, 2)}
    for bucket in buckets:
        weights = [(name, torch.ones(shapes[name])) for name in bucket]
        utils.vLLMColocateWorkerExtension._update_weights(worker, weights, peft_config=None, base_sync_done=False)


def loaded(*buckets: list[str]) -> bool:
    """Whether every weight of a new model came, though its second name was in any of the buckets."""
    model = tied_model()
    load(model, *buckets)
    return all(torch.equal(weight, torch.ones_like(weight)) for weight in model.parameters())


@pytest.mark.parametrize(
    "buckets", [([EMBEDDING], [LAYER, HEAD]), ([EMBEDDING, LAYER], [HEAD]), ([EMBEDDING, LAYER, HEAD],)]
)
def test_a_tied_weight_is_loaded_whichever_bucket_brings_its_second_name(buckets: tuple[list[str], ...]) -> None:
    # In a process of its own: another test may have imported verl without the plugin.
    code = f"from {__name__} import loaded; print(loaded(*{buckets!r}))"
    environment = {**os.environ, "VERL_PLATFORM": "cpu"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert run.stdout.splitlines()[-1:] == ["True"], run.stderr[-3000:]


def test_without_the_plugins_part_vllm_refuses_the_second_name() -> None:
    model = tied_model()
    model.load_weights([(EMBEDDING, torch.ones(4, 2)), (LAYER, torch.ones(2, 2))])  # type: ignore[operator]
    with pytest.raises(ValueError, match="tied"):
        model.load_weights([(HEAD, torch.ones(4, 2))])  # type: ignore[operator]
