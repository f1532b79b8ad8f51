"""The budgets on a runner that keeps tokens on the device: what is needed of them is read when a row is looked at.

A runner gives every request a slot, says in each step which slots take part and how long their sequences are, and never
says that one has left: its slot is given to another.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import torch

from elastic_core.budget import Budget
from elastic_core.engines.budgets.processor import Progress, Stops, thought_is_closed
from elastic_core.engines.budgets.schedule import Schedule


class SlotBudgets:
    """Budgets of the requests in slots.

    Args:
        tokens: [slots, context], a prompt and what came after it, on the device and ever changing.
        prompt_lengths: [slots], on the host and ever changing.
        prefill_lengths: as these, with what a request that comes back had been given before.
    """

    def __init__(
        self,
        stops: Stops,
        tokens: torch.Tensor,
        prompt_lengths: np.ndarray[Any, Any],
        prefill_lengths: np.ndarray[Any, Any],
    ) -> None:
        self._stops, self._tokens = stops, tokens
        self._prompt_lengths, self._prefill_lengths = prompt_lengths, prefill_lengths
        self._schedule = Schedule()
        self._new: dict[int, Budget] = {}
        self._lengths = np.zeros(len(prompt_lengths), np.int64)
        self._row = np.zeros(len(prompt_lengths), np.int64)

    def add(self, slot: int, budget: Budget | None) -> bool:
        """The request has left its slot. Returns whether there is anything to keep."""
        self._schedule.remove(slot)
        self._new.pop(slot, None)
        if budget is not None:
            self._new[slot] = budget
        return budget is not None

    def begin(self) -> None:
        """Before a step, once its prompts are on the device."""
        for slot, budget in self._new.items():
            prompt = self._tokens[slot, : int(self._prompt_lengths[slot])].tolist()
            closed = thought_is_closed(prompt, self._stops)
            self._lengths[slot] = 0
            self._schedule.add(slot, Progress(budget, self._stops, 0 if closed else None), _Output(self, slot))
        self._new.clear()

    def apply(self, logits: torch.Tensor, slots: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> None:
        """Give due rows one possible token.

        Args:
            logits: [rows, vocabulary], changed in place.
            slots: [rows], on the host.
            lengths: [rows], tokens of prompt and response so far, on the host.
        """
        # What is drawn within a prefill is thrown away, and a row there grows by many tokens at once.
        (rows,) = np.nonzero(lengths >= self._prefill_lengths[slots])
        decoding = slots[rows]
        self._lengths[decoding] = lengths[rows] - self._prompt_lengths[decoding]
        self._row.fill(-1)
        self._row[decoding] = rows
        for slot in self._schedule.away.intersection(decoding.tolist()):
            self._schedule.wake(slot)
        forced = self._schedule.step(lambda slot: self._row[slot] >= 0)
        if forced:
            pairs = torch.tensor([(int(self._row[slot]), token) for slot, token in forced])
            force(logits, pairs)

    def _read(self, slot: int, start: int) -> list[int]:
        """Tokens of a response from index `start` on. It waits for the device."""
        prompt, length = int(self._prompt_lengths[slot]), int(self._lengths[slot])
        tokens: list[int] = self._tokens[slot, prompt + start : prompt + length].tolist()
        return tokens


def force(logits: torch.Tensor, pairs: torch.Tensor) -> None:
    """Leave rows one possible token. `pairs`: [due rows, 2], row and token, on the host."""
    rows, tokens = pairs.to(logits.device, non_blocking=True).T
    logits[rows] = float("-inf")
    logits[rows, tokens] = 0.0


class _Output(Sequence[int]):
    """A response on the device; its tokens come over once."""

    def __init__(self, budgets: SlotBudgets, slot: int) -> None:
        self._budgets, self._slot = budgets, slot
        self._known: list[int] = []

    def __len__(self) -> int:
        return int(self._budgets._lengths[self._slot])

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self._tokens()[index]

    def index(self, value: Any, start: int = 0, stop: int = sys.maxsize) -> int:
        """As of a list."""
        return self._tokens().index(value, start, stop)

    def _tokens(self) -> list[int]:
        if len(self._known) < len(self):
            self._known += self._budgets._read(self._slot, len(self._known))
        return self._known
