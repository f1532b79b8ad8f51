"""A logits processor after ours that undoes what was forced, as a later stage of an engine might."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor


class Deaf(AdapterLogitsProcessor):
    """Writes the token that a request names as `deaf` in its `vllm_xargs`, and nothing else."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Callable[..., torch.Tensor] | None:
        token = (params.extra_args or {}).get("deaf")
        if token is None:
            return None

        def write(output: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[:] = float("-inf")
            logits[token] = 0.0
            return logits

        return write
