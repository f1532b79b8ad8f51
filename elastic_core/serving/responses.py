"""Responses of OpenAI's API as the client gets them: tokens counted by phase, nothing of a cut but its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic_core.budget import Budget
from elastic_core.engines.budgets.processor import Stops, thought_is_closed
from elastic_core.serving.requests import Plan

KEY = "elastic"
"""In a choice that has ended."""


@dataclass
class Tally:
    """Tokens of one choice, as the trajectory of `separate` counts them.

    Attributes:
        thinking, solution: sampled tokens; a think-end that the model wrote belongs to the thinking.
        forced: a think-end that it did not write.
        length: all of these.
        solution_start: their number where the solution begins; None while the thought is open.
        cut: whether the solution was ended after s tokens.
    """

    budget: Budget
    stops: Stops
    solution_start: int | None
    thinking: int = 0
    solution: int = 0
    forced: int = 0
    length: int = 0
    cut: bool = False
    finish: str | None = None
    _last: int | None = None

    def add(self, tokens: Sequence[int]) -> int:
        """Count what has come. Returns how many of the tokens belong to the response: all but a cut's own."""
        for i, token in enumerate(tokens):
            if self.solution_start is None:
                if token == self.stops.think_end:
                    self.solution_start = self.length + 1
                    self.forced += self.length == self.budget.think
                self.thinking += not self.forced
            elif self.length - self.solution_start == self.budget.solution:
                self.cut = True
                return i
            else:
                self.solution += 1
            self.length += 1
            self._last = token
        return len(tokens)

    @property
    def thought(self) -> str:
        """How the thought ended: closed by the model, forced at t, end_of_text where the model ended its response
        inside, not_applicable where the prompt had closed it, unfinished where something else ended the response."""
        if self.solution_start is not None:
            return "not_applicable" if not self.solution_start else "forced" if self.forced else "closed"
        ended = self.finish == "stop" and self._last in self.stops.end_of_text
        return "end_of_text" if ended else "unfinished"

    @property
    def is_cut(self) -> bool:
        """Whether the solution filled its budget and did not end there by itself."""
        return self.cut or (self.finish == "length" and self.solution == self.budget.solution)


@dataclass
class Reply:
    """One request's response, which it edits in place as it comes."""

    plan: Plan
    stops: Stops
    tallies: dict[int, Tally] = field(default_factory=dict)
    _closed: bool = False

    def whole(self, document: dict[str, Any]) -> None:
        """A response in one piece."""
        self._prompt(document)
        for choice in document["choices"]:
            self._choice(choice, choice.get("message"))
        self._usage(document, list(self.tallies.values()))

    def event(self, document: dict[str, Any]) -> bool:
        """A chunk of a stream. Returns whether the client gets it: one that only told us token ids it does not."""
        self._prompt(document)
        choices = document.get("choices") or ()
        for choice in choices:
            self._choice(choice, choice.get("delta"))
        self._usage(document, [self.tallies[choice["index"]] for choice in choices] or list(self.tallies.values()))
        return not choices or any(map(self._says_something, choices))

    def _says_something(self, choice: dict[str, Any]) -> bool:
        delta = choice.get("delta")
        if delta is None or self.plan.shows_ids or choice.get("finish_reason") or choice.get("logprobs"):
            return True
        return any(value is not None for value in delta.values())

    def _prompt(self, document: dict[str, Any]) -> None:
        """The prompt's ids, which vLLM tells of a chat here and of a completion in each choice."""
        prompt = document.get("prompt_token_ids")
        if prompt is not None:
            self._closed = thought_is_closed(prompt, self.stops)
            if not self.plan.shows_ids:
                del document["prompt_token_ids"]

    def _choice(self, choice: dict[str, Any], message: dict[str, Any] | None) -> None:
        prompt = choice.get("prompt_token_ids")
        closed = self._closed if prompt is None else thought_is_closed(prompt, self.stops)
        tally = self.tallies.get(choice["index"])
        if tally is None:
            tally = Tally(self.plan.budget, self.stops, 0 if closed else None)
            self.tallies[choice["index"]] = tally
        tokens = choice.get("token_ids") or []
        thinking = tally.solution_start is None
        kept = tally.add(tokens)
        if self.plan.shows_ids:
            choice["token_ids"] = tokens[:kept]
        else:
            choice.pop("token_ids", None)
            choice.pop("prompt_token_ids", None)
        if kept < len(tokens):
            _shorten(choice.get("logprobs"), len(tokens) - kept)
        if message is not None and not self.plan.shows_reasoning:
            _hide(choice, message, thinking)
        if choice.get("finish_reason"):
            self._end(choice, tally)

    def _end(self, choice: dict[str, Any], tally: Tally) -> None:
        if tally.cut:
            choice["finish_reason"], choice["stop_reason"] = "length", None
        tally.finish = choice["finish_reason"]
        choice[KEY] = {
            "budget": str(self.plan.budget),
            "level": self.plan.level,
            "thought": tally.thought,
            "thinking_tokens": tally.thinking,
            "solution_tokens": tally.solution,
            "forced_tokens": tally.forced,
        }

    @staticmethod
    def _usage(document: dict[str, Any], tallies: Sequence[Tally]) -> None:
        usage = document.get("usage")
        if usage is None:
            return
        usage["completion_tokens"] = sum(tally.thinking + tally.solution for tally in tallies)
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        usage["completion_tokens_details"] = {
            **(usage.get("completion_tokens_details") or {}),
            "reasoning_tokens": sum(tally.thinking for tally in tallies),
            "forced_tokens": sum(tally.forced for tally in tallies),
        }


def _shorten(logprobs: dict[str, Any] | None, count: int) -> None:
    """Without the last tokens: a chat has a list of them, a completion several lists side by side."""
    for values in (logprobs or {}).values():
        if isinstance(values, list):
            del values[len(values) - count :]


def _hide(choice: dict[str, Any], message: dict[str, Any], thinking: bool) -> None:
    """What vLLM leaves out of a response without reasoning."""
    for key in ("reasoning", "reasoning_content"):
        message.pop(key, None)
    if thinking:
        choice["logprobs"] = None
