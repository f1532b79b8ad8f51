"""The budget processor as a logits processor of vLLM's V1 runner."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from elastic_core.engines.budgets.parameters import CLOSED, budget_of, marks_of, validate, worded
from elastic_core.engines.budgets.processor import Progress, Schedule, force


class SeparateBudgets(LogitsProcessor):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        if vllm_config.speculative_config is not None:
            raise ValueError("budgets are served with speculative decoding on vLLM's V2 runner alone")
        self._marks = marks_of(vllm_config)
        self._pinned = is_pin_memory
        self._schedule = Schedule()

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        validate(sampling_params)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow rows through the batch. No output is read: with asynchronous scheduling it still ends in -1."""
        if batch_update is None:
            return
        schedule = self._schedule
        for index in batch_update.removed:
            schedule.remove(index)
        for index, sampling, prompt, output in batch_update.added:
            budget = budget_of(sampling)
            if budget is None:
                schedule.remove(index)
                continue
            closed = sampling.extra_args.get(CLOSED)  # Who has the request knows whether it continues an answer.
            marks = worded(self._marks, sampling.extra_args)
            known = Progress(budget, marks, 0 if closed else None)
            schedule.add(index, Progress.of(budget, marks, prompt or ()) if closed is None else known, output)
        for one, other, direction in batch_update.moved:
            if direction is MoveDirectionality.SWAP:
                schedule.swap(one, other)
            else:
                schedule.move(one, other)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Due rows get one possible token. `logits`: [rows, vocabulary], changed in place."""
        if forced := self._schedule.step():
            force(logits, forced, self._pinned)
        return logits
