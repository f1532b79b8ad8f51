"""The budget processor on a runner that keeps tokens on the device; a row's tokens are read when the row is looked at.

The runner gives every request a slot, and says in each step which slots take part and how long their sequences are. It
does not say when a request leaves: its slot goes to another one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import torch

from elastic_core.budget import Budget
from elastic_core.engines.budgets.processor import Progress, Schedule, Stops, thought_is_closed


class SlotBudgets:
    """Budgets of the requests in slots.

    Args:
        tokens: [slots, context], prompt and response, on the device; the runner changes them.
        prompt_lengths: [slots], on the host; the runner changes them.
        prefill_lengths: [slots], as these, with the earlier response of a request that comes back.
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
        """A request comes into a slot. Returns whether it has a budget."""
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
        # Within a prefill samples are discarded, and a row grows by many tokens at once.
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
