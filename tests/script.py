"""A logits processor for tests: a response has the tokens of its request's `script`, except where a later processor
forces another one."""

from __future__ import annotations

import json
from typing import Any

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor


class Script(AdapterLogitsProcessor):
    """Reads token ids from `vllm_xargs`, as JSON in "script"; the model chooses after them."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        script = json.loads((params.extra_args or {}).get("script", "[]"))
        forced = 0

        def follow(output: list[int], logits: torch.Tensor) -> torch.Tensor:
            nonlocal forced
            # What was written instead of the script takes no token from it.
            drawn = len(output) - forced
            if output and drawn and drawn <= len(script) and output[-1] != script[drawn - 1]:
                forced, drawn = forced + 1, drawn - 1
            if drawn < len(script):
                logits[:] = float("-inf")
                logits[script[drawn]] = 0.0
            return logits

        return follow if script else None
