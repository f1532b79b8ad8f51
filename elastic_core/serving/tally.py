"""Tokens of one choice of a response, held against its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic_core.budget import Budget
from elastic_core.models.marks import Marks


@dataclass
class Tally:
    """Tokens of one choice, counted as in a trajectory of `separate`: sampled ones of the thinking, with the model's
    own think-end, and of the solution; a think-end that was forced; and all of these. `excess` tokens were drawn beyond
    the budget, which is the engine's fault, and belong to no response. `solution_start` is None while the thought is
    open; `cut` is whether the solution was ended after s tokens, which the engine does unless a `grammar` forbids it;
    `load` is what the client is told of the server's load, and `rule` what its stop rule did."""

    budget: Budget
    marks: Marks
    solution_start: int | None
    thinking: int = 0
    solution: int = 0
    forced: int = 0
    length: int = 0
    excess: int = 0
    cut: bool = False
    grammar: bool = False
    finish: str | None = None
    load: Mapping[str, Any] = field(default_factory=dict)
    rule: Mapping[str, Any] = field(default_factory=dict)
    _last: int | None = None
    _thought: list[int] = field(default_factory=list)
    _closing: tuple[int, ...] = ()

    def add(self, tokens: Sequence[int]) -> int:
        """Count new tokens. Returns how many of them belong to the response: all but a cut's end-of-text, and what is
        beyond the budget."""
        for i, token in enumerate(tokens):
            if self.solution_start is None and self.length == self.budget.think:
                self._closing = self.marks.closing(self._thought)
                self.solution_start = None if self._closing else self.length
            if self.solution_start is None:
                if self._closing and token != self._closing[self.forced]:
                    self.excess += len(tokens) - i
                    return i
                self._think(token)
            elif self.length - self.solution_start == self.budget.solution:
                self.cut = True
                if not self.grammar:
                    self.excess += len(tokens) - i - (token in self.marks.end_of_text)
                return i
            else:
                self.solution += 1
            self.length += 1
            self._last = token
        return len(tokens)

    def _think(self, token: int) -> None:
        """Count a token before the solution: one that the model chose, or one of those that close the thought at t."""
        if self._closing:
            self.forced += 1
            if self.forced == len(self._closing):
                self.solution_start = self.length + 1
            return
        self._thought.append(token)
        self.thinking += 1
        if token in self.marks.stop:
            self.solution_start = self.marks.end(self._thought, self.length)

    @property
    def thought(self) -> str:
        """How the thought ended: closed by the model, forced at t, end_of_text where the model ended its response
        inside, not_applicable where the prompt had closed it, unfinished where something else ended the response."""
        if self.solution_start is not None:
            own = not self.forced or self.marks.rest_of_end(self._thought)
            return "not_applicable" if not self.solution_start else "closed" if own else "forced"
        ended = self.finish == "stop" and self._last in self.marks.end_of_text
        return "end_of_text" if ended else "unfinished"

    @property
    def is_cut(self) -> bool:
        """Whether the solution filled its budget and did not end there by itself."""
        return self.cut or (self.finish == "length" and self.solution == self.budget.solution)
