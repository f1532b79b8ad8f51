"""What vLLM does twice on a CPU, done once: noise to sample with, and its own imports.

vLLM (0.29 to 0.31) on a CPU draws noise twice for requests with a seed, as ours are: for the batch, then again from
each generator, which replaces the first. With a vocabulary of 49,152 tokens each draw takes 1.3 ms a token,
and both together as long as the passes of a model of 135 million parameters. The sampled tokens are the same.
"""

from __future__ import annotations

import os
from typing import Any

from elastic_core.system.private_stores import VARIABLE


def install_in_vllm() -> None:
    """Draw noise once in processes of our engines, and start none to look at a model's class. vLLM calls this in every
    process that has the package installed."""
    if not os.environ.get(VARIABLE):
        return
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.model_executor.models import registry
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

    # A process of its own keeps CUDA out of this one, and imports all of vLLM again for each kind of model.
    registry._run_in_subprocess = lambda look: look()
    original = TopKTopPSampler.forward_cpu

    def forward_cpu(self: Any, logits: Any, generators: dict[int, Any], k: Any, p: Any) -> Any:
        # vLLM's form for other platforms leaves the first draw out where every request has a generator.
        once = len(generators) == logits.shape[0]
        return self.forward_native(logits, generators, k, p) if once else original(self, logits, generators, k, p)

    TopKTopPSampler.forward_cpu = forward_cpu
