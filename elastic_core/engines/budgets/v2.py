"""The budget processor as a logits processor of vLLM's V2 runner."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

from elastic_core.engines.budgets.drafts import DraftBudgets
from elastic_core.engines.budgets.parameters import CLOSED, V2, budget_of, marks_of, refused_drafts, validate
from elastic_core.engines.budgets.processor import SlotBudgets


class SeparateBudgets(LogitsProcessor):
    """A logits row is a request of a length that is known on the host; under speculative decoding a request has several
    rows, and lengths are known on the device alone."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        marks, tokens = marks_of(vllm_config), req_states.all_token_ids.gpu
        prompts, prefills, drafts = req_states.prompt_len, req_states.prefill_len, vllm_config.speculative_config
        self._budgets: SlotBudgets | DraftBudgets
        if drafts is None:
            self._budgets = SlotBudgets(marks, tokens, prompts.np, prefills.np)
            return
        if refused := refused_drafts(V2.processor):
            raise ValueError(refused)
        if drafts.rejection_sample_method == "synthetic":
            raise ValueError(
                'with rejection_sample_method "synthetic" drafts are accepted whatever the model says of them'
            )
        self._budgets = DraftBudgets(marks, tokens, prompts.gpu, prefills.gpu, drafts.num_speculative_tokens)

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        validate(sampling_params)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        arguments = sampling_params.extra_args or {}
        return self._budgets.add(req_idx, budget_of(sampling_params), arguments.get(CLOSED), arguments)

    def apply_staged_writes(self) -> None:
        self._budgets.begin()

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        if isinstance(self._budgets, SlotBudgets):
            self._budgets.apply(logits, ctx.idx_mapping_np, ctx.seq_lens_upper_bound_np)
        else:
            self._budgets.apply(logits, ctx.expanded_idx_mapping, ctx.input_ids, ctx.pos, ctx.expanded_local_pos)
        return logits
