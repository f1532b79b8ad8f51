"""Budgets and counts in responses: in OpenAI's chats, completions and Responses, and in Anthropic's messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from elastic_core.engines.budgets.parameters import KEY
from elastic_core.serving.counting import Count
from elastic_core.serving.requests import Kind
from elastic_core.serving.tally import Tally

_CHOICE = re.compile(rb'"finish_reason":\s*"|"usage":\s*\{')
_EVENTS: dict[Kind, re.Pattern[bytes]] = {
    "chat": _CHOICE,
    "completions": _CHOICE,
    "responses": re.compile(rb'"type":\s*"response\.(completed|incomplete|failed)"'),
    "messages": re.compile(rb'"type":\s*"message_delta"'),
}
"""Events of a stream that are edited; the others need not be parsed. In a text the quotes would be escaped."""
_REASONING = re.compile(rb'"reasoning":\s*"')


class Reply:
    """Edits the documents of one response in place. `reasoning_content` gives a chat's thought that older name too."""

    def __init__(self, kind: Kind, count: Count, reasoning_content: bool = False) -> None:
        self._kind, self._count = kind, count
        self._named_twice = reasoning_content and kind == "chat"
        self._continues = kind == "chat" and count.plan is not None and count.plan.continues
        self.edit: Callable[[dict[str, Any]], None] = {
            "chat": self._choices,
            "completions": self._choices,
            "responses": self._response,
            "messages": self._message,
        }[kind]
        """Of a whole response, or an event's data."""

    def concerns(self, event: bytes) -> bool:
        """Whether an event of a stream is to be edited."""
        has_thought = (self._named_twice or self._continues) and _REASONING.search(event)
        return bool(_EVENTS[self._kind].search(event) or has_thought)

    def _choices(self, document: dict[str, Any]) -> None:
        tallies, choices = self._count.tallies, document.get("choices") or ()
        for choice in choices:
            message, tally = choice.get("message") or choice.get("delta"), tallies.get(choice["index"])
            if self._continues and message and tally and tally.solution_start == 0 and message.get("reasoning"):
                # vLLM's parser takes what has no marks for a thought.
                message["content"] = message["reasoning"] + (message.get("content") or "")
                message["reasoning"] = None
            if self._named_twice and message and message.get("reasoning") is not None:
                message["reasoning_content"] = message["reasoning"]
            if choice.get("finish_reason"):
                if tally and tally.finish == "length":  # A call that was cut is incomplete.
                    choice["finish_reason"] = "length"
                choice[KEY] = self._count.told(choice["index"])
        if usage := document.get("usage"):
            counted = [tallies[choice["index"]] for choice in choices if choice["index"] in tallies]
            counted = counted or list(tallies.values())
            usage["completion_tokens"] = _sampled(counted)
            usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
            usage["completion_tokens_details"] = _details(usage.get("completion_tokens_details"), counted)

    def _response(self, document: dict[str, Any]) -> None:
        document = document.get("response") or document
        document[KEY] = self._count.told()
        if usage := document.get("usage"):
            tallies = self._count.tallies.values()
            usage["output_tokens"] = _sampled(tallies)
            usage["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]
            usage["output_tokens_details"] = _details(usage.get("output_tokens_details"), tallies)

    def _message(self, document: dict[str, Any]) -> None:
        document[KEY] = self._count.told()
        told = document.get("delta") or document
        if told.get("stop_reason") and any(tally.finish == "length" for tally in self._count.tallies.values()):
            told["stop_reason"] = "max_tokens"
        if usage := document.get("usage"):
            usage["output_tokens"] = _sampled(self._count.tallies.values())


def _sampled(tallies: Collection[Tally]) -> int:
    return sum(tally.thinking + tally.solution for tally in tallies)


def _details(given: dict[str, Any] | None, tallies: Collection[Tally]) -> dict[str, Any]:
    probing = [tally.rule for tally in tallies if tally.rule]
    return {
        **(given or {}),
        "reasoning_tokens": sum(tally.thinking for tally in tallies),
        "forced_tokens": sum(tally.forced for tally in tallies),
        **({"probe_tokens": sum(rule["probe_tokens"] for rule in probing)} if probing else {}),
    }
