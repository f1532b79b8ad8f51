"""The budget processor as a logits processor of vLLM's V2 runner."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

from elastic_core.engines.budgets.parameters import CLOSED, budget_of, marks_of, validate
from elastic_core.engines.budgets.processor import SlotBudgets


class SeparateBudgets(LogitsProcessor):
    """A logits row is a request of a length that is known on the host: speculative decoding is refused."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        lengths = (req_states.prompt_len.np, req_states.prefill_len.np)
        self._budgets = SlotBudgets(marks_of(vllm_config), req_states.all_token_ids.gpu, *lengths)

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        validate(sampling_params)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        arguments = sampling_params.extra_args or {}
        return self._budgets.add(req_idx, budget_of(sampling_params), arguments.get(CLOSED), arguments)

    def apply_staged_writes(self) -> None:
        self._budgets.begin()

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        self._budgets.apply(logits, ctx.idx_mapping_np, ctx.seq_lens_upper_bound_np)
        return logits
