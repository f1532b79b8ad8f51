"""Tokens of one choice of a response, held against its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic_core.budget import Budget
from elastic_core.engines.budgets.processor import Progress
from elastic_core.models.marks import Marks


@dataclass
class Tally:
    """Tokens of one choice, counted as in a trajectory of `separate`: sampled ones of the thinking, with the model's
    think-end, and of the solution; a think-end that was forced; and all of these. `excess` tokens were drawn beyond
    the budget, which is the engine's fault, and belong to no response. `solution_start` is None while the thought is
    open; `cut` is whether the solution was ended after s tokens, which the engine does unless a `grammar` forbids it;
    `load` and `rule` are fields of the response about the server's load, and its stop rule."""

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
    _written: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._is_closed = self.solution_start is not None
        self._progress = Progress(self.budget, self.marks, self.solution_start)
        self._due: int | None = 0  # The length at which something may be forced next.
        self._stop = frozenset(self.marks.stop)

    def add(self, tokens: Sequence[int]) -> int:
        """Count new tokens. Returns how many of them belong to the response: all but a cut's end-of-text, and tokens
        beyond the budget."""
        kept, progress = 0, self._progress
        while kept < len(tokens):
            token, due = None, self._due
            if due == len(self._written):
                token, wait, near = progress.update(self._written)
                due = None if wait is None else due + wait
                if near and token != tokens[kept]:  # It was not probable enough.
                    token = None
            if token is None:
                end = len(tokens) if due is None else kept + due - len(self._written)
            elif progress.solution_start is not None:
                self.cut = True
                if not self.grammar:
                    self.excess += len(tokens) - kept - (tokens[kept] in self.marks.end_of_text)
                break
            elif token != tokens[kept]:
                self.excess += len(tokens) - kept
                break
            else:
                self.forced, end = self.forced + 1, kept + 1
            self._written += tokens[kept:end]
            kept, self._due = min(end, len(tokens)), due
        if progress.solution_start is None and (self.forced or not self._stop.isdisjoint(tokens)):
            progress.update(self._written)
        self.solution_start, self.length = progress.solution_start, len(self._written)
        self.solution = 0 if self.solution_start is None else self.length - self.solution_start
        self.thinking = self.length - self.solution - self.forced
        return kept

    @property
    def thought(self) -> str:
        """How the thought ended: closed by the model, forced at t, end_of_text where the model ended its response
        inside, not_applicable where the prompt had closed it, unfinished where something else ended the response."""
        if self._is_closed:
            return "not_applicable"
        if self.solution_start is not None:
            own = not self.forced or self.marks.rest_of_end(self._written[: self.thinking])
            return "closed" if own else "forced"
        ended = self.finish == "stop" and self._written[-1:] and self._written[-1] in self.marks.end_of_text
        return "end_of_text" if ended else "unfinished"

    @property
    def is_cut(self) -> bool:
        """Whether the solution filled its budget and did not end there by itself."""
        return self.cut or (self.finish == "length" and self.solution == self.budget.solution)
