"""The budget processor: forces the tokens that strategy `separate` would write.

`Progress.update` enforces t and s: think-end after t sampled tokens without one, end-of-text after s of solution.
A token is due at a length of the output that is known beforehand, except for where the model ends its thought itself.
So a response is updated when something may be due at the earliest. `Schedule` finds the rows of a batch to update: the
cost of a decoding step is that of its due rows, however many others there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from elastic_core.budget import Budget
from elastic_core.engines.budgets.parameters import worded
from elastic_core.models.marks import Marks

if TYPE_CHECKING:
    import torch


class Due(NamedTuple):
    """A token to force now, None when the model may choose; further tokens until something may be due again, at
    least 1, None when nothing will be; and if not 0, how probable the token must be: to be forced it has to be among so
    many most probable ones."""

    token: int | None
    wait: int | None
    near: int = 0


@dataclass
class Progress:
    """One response under a budget: tokens before the solution (None while the thought is open), and tokens that are
    known to complete no end of a thought."""

    budget: Budget
    marks: Marks
    solution_start: int | None = None
    read: int = 0
    think: int | None = field(init=False)
    """Most tokens of the thought: those of the budget, or fewer once a soft closing has begun."""

    def __post_init__(self) -> None:
        self.think = self.budget.think

    @classmethod
    def of(cls, budget: Budget, marks: Marks, prompt: Sequence[int]) -> Progress:
        """The progress of a response that begins now."""
        return cls(budget, marks, 0 if marks.is_closed(prompt) else None)

    def update(self, output: Sequence[int]) -> Due:
        """Decide on the next token. `output`: all tokens of the response so far, forced ones included."""
        soft = self.marks.soft if self.think == self.budget.think else None
        if soft is not None and self.solution_start is None:
            self.think = self.marks.soft_end(output, self.think)
        length, think, solution = len(output), self.think, self.budget.solution
        if self.solution_start is None:
            sampled = length if think is None else min(length, think)
            self.solution_start = self.marks.end(output, self.read, sampled)
            self.read = sampled
        if self.solution_start is None and think is not None and length >= think:
            closing = self.marks.closing(output[:think])
            if length - think < len(closing):
                return Due(closing[length - think], 1)
            self.solution_start = think + len(closing)
        if self.solution_start is not None:
            if solution is None:
                return Due(None, None)
            left = self.solution_start + solution - length
            return Due(None, left) if left > 0 else Due(self.marks.cut, 1)
        # Were the next token think-end, the solution would be over s tokens after it; that of a call is one of the s.
        over = None if solution is None else solution + (not self.marks.calls)
        if soft is not None and think is not None:
            begin = self.marks.soft_begin(output, think)
            if begin <= length:
                return Due(self.marks.close[0], 1, soft.most)
            think = begin
        waits = [w for w in (None if think is None else think - length, over) if w is not None]
        return Due(None, min(waits, default=None))


@dataclass(eq=False)
class Row:
    """A response's row of the batch. `output` is the engine's list, which grows; `step` names the bucket that the row
    waits in, None when nothing will be due any more."""

    index: int
    progress: Progress
    output: Sequence[int]
    step: int | None = None


class Schedule:
    """Rows by index and by step. In one step a row grows by one token at most, and may grow by none."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._buckets: defaultdict[int, dict[Row, None]] = defaultdict(dict)
        self._now = 0
        self.away: set[int] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, index: int, progress: Progress, output: Sequence[int]) -> None:
        """Update a row in the next step; replaces the row that had its index."""
        self.remove(index)
        self._rows[index] = row = Row(index, progress, output)
        self._wait(row, self._now)

    def remove(self, index: int) -> None:
        row = self._rows.pop(index, None)
        self.away.discard(index)
        if row is not None and row.step is not None:
            del self._buckets[row.step][row]
            if not self._buckets[row.step]:
                del self._buckets[row.step]

    def wake(self, index: int) -> None:
        """Update a row in the next step that was away."""
        self.away.remove(index)
        self._wait(self._rows[index], self._now)

    def move(self, source: int, target: int) -> None:
        """Replaces the row at `target` by that at `source`."""
        self.remove(target)
        self._place(self._rows.pop(source, None), target)

    def swap(self, one: int, other: int) -> None:
        first, second = self._rows.pop(one, None), self._rows.pop(other, None)
        self._place(first, other)
        self._place(second, one)

    def step(self, is_present: Callable[[int], bool] = lambda index: True) -> list[tuple[int, int, int]]:
        """One decoding step: index, forced token and `Due.near` of every due row. An absent one is `away`,
        until `wake`."""
        forced = []
        for row in self._buckets.pop(self._now, ()):
            row.step = None
            if not is_present(row.index):
                self.away.add(row.index)
                continue
            token, wait, near = row.progress.update(row.output)
            if token is not None:
                forced.append((row.index, token, near))
            if wait is not None:
                self._wait(row, self._now + wait)
        self._now += 1
        return forced

    def _place(self, row: Row | None, index: int) -> None:
        if row is not None:
            row.index = index
            self._rows[index] = row

    def _wait(self, row: Row, step: int) -> None:
        row.step = step
        self._buckets[step][row] = None


class SlotBudgets:
    """The budget processor on a runner that keeps tokens on the device; a row's tokens are read when it is looked at.

    The runner gives every request a slot, and says in each step which slots take part and how long their sequences are.
    It does not say when a request leaves: its slot goes to another one.

    Args:
        tokens: [slots, context], prompt and response, on the device; the runner changes them.
        prompt_lengths: [slots], on the host; the runner changes them.
        prefill_lengths: [slots], as these, with the earlier response of a request that comes back.
    """

    def __init__(
        self,
        marks: Marks,
        tokens: torch.Tensor,
        prompt_lengths: np.ndarray[Any, Any],
        prefill_lengths: np.ndarray[Any, Any],
    ) -> None:
        self._marks, self._tokens = marks, tokens
        self._prompt_lengths, self._prefill_lengths = prompt_lengths, prefill_lengths
        self._schedule = Schedule()
        self._new: dict[int, tuple[Budget, Marks, bool | None]] = {}
        self._lengths = np.zeros(len(prompt_lengths), np.int64)
        self._row = np.zeros(len(prompt_lengths), np.int64)

    def add(
        self, slot: int, budget: Budget | None, closed: bool | None = None, arguments: Mapping[str, Any] | None = None
    ) -> bool:
        """A request with `arguments` (`worded`) comes into a slot; `closed` is whether its prompt has closed the
        thought, None where that is not known and the prompt has to be read. Returns whether it has a budget."""
        self._schedule.remove(slot)
        self._new.pop(slot, None)
        if budget is not None:
            self._new[slot] = budget, worded(self._marks, arguments or {}), closed
        return budget is not None

    def begin(self) -> None:
        """Before a step, once its prompts are on the device. Reading one there waits for the device."""
        for slot, (budget, marks, closed) in self._new.items():
            if closed is None:
                closed = marks.is_closed(self._tokens[slot, : int(self._prompt_lengths[slot])].tolist())
            self._lengths[slot] = 0
            self._schedule.add(slot, Progress(budget, marks, 0 if closed else None), _Output(self, slot))
        self._new.clear()

    def apply(self, logits: torch.Tensor, slots: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> None:
        """Give due rows of `logits` [rows, vocabulary] one possible token, in place. `slots` [rows] and `lengths`
        [rows or more], tokens of prompt and response so far, are on the host. In a CUDA graph, where a batch has a
        fixed size, vLLM pads the lengths and nothing else."""
        lengths = lengths[: len(slots)]
        # Within a prefill samples are discarded, and a row grows by many tokens in one step.
        (rows,) = np.nonzero(lengths >= self._prefill_lengths[slots])
        decoding = slots[rows]
        self._lengths[decoding] = lengths[rows] - self._prompt_lengths[decoding]
        self._row.fill(-1)
        self._row[decoding] = rows
        for slot in self._schedule.away.intersection(decoding.tolist()):
            self._schedule.wake(slot)
        forced = self._schedule.step(lambda slot: self._row[slot] >= 0)
        if forced:
            force(logits, [(int(self._row[slot]), token, near) for slot, token, near in forced])

    def _read(self, slot: int, start: int) -> list[int]:
        """Tokens of a response from index `start` on. It waits for the device."""
        prompt, length = int(self._prompt_lengths[slot]), int(self._lengths[slot])
        tokens: list[int] = self._tokens[slot, prompt + start : prompt + length].tolist()
        return tokens


def force(logits: torch.Tensor, forced: list[tuple[int, int, int]], pinned: bool = False) -> None:
    """Leave rows of `logits` [rows, vocabulary] one possible token: triples of row, token, and if not 0 the rank that
    it needs there. They travel from pinned memory where the platform has it; ranks are not waited for."""
    import torch  # `Progress` is read without it.

    rows, tokens, near = torch.tensor(forced, pin_memory=pinned).to(logits.device, non_blocking=True).T
    before = logits[rows] if any(each[2] for each in forced) else None
    logits[rows] = float("-inf")
    logits[rows, tokens] = 0.0
    if before is not None:
        rank = (before > before.gather(1, tokens[:, None])).sum(1)
        logits[rows] = torch.where(((near > 0) & (rank >= near))[:, None], before, logits[rows])


class _Output(Sequence[int]):
    """A response on the device; its tokens come over once."""

    def __init__(self, budgets: SlotBudgets, slot: int) -> None:
        self._budgets, self._slot = budgets, slot
        self._known: list[int] = []

    def __len__(self) -> int:
        return int(self._budgets._lengths[self._slot])

    def __getitem__(self, index: Any) -> Any:
        return self._tokens()[index]

    def _tokens(self) -> list[int]:
        if len(self._known) < len(self):
            self._known += self._budgets._read(self._slot, len(self._known))
        return self._known
