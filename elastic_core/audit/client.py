"""Requests of an audit, and what comes back: the same for OpenAI's chats and Anthropic's messages, streamed or not."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from elastic_core.engines.base import RequestFailed
from elastic_core.engines.http_server import HttpServer
from elastic_core.errors import UserError
from elastic_core.models.families import split_thought, thoughts

Api = Literal["chat", "messages"]
_FORMS = (
    ("max_tokens", "seed", "return_token_ids"),
    ("max_tokens", "seed"),
    ("max_tokens",),
    ("max_completion_tokens",),
)
"""Fields of every request, the limit of the response first; the first form that the server takes is used."""
_FINISHES = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
Ids = Sequence[int]


@dataclass
class Answer:
    """One choice of a response. `arguments` are those of its first tool call, as JSON; `usage` is empty for one of
    several choices; `seconds` until the first token of a streamed answer. `count` are the tokens of the thought,
    `by_text` those of its text; `again` is whether a mark of a thought comes after its end; `repeats` whether it is
    that of the same request before."""

    thought: str = ""
    text: str = ""
    arguments: str = ""
    finish: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    seconds: float | None = None
    count: int = 0
    by_text: bool = False
    again: bool = False
    repeats: bool = False

    @property
    def sampled(self) -> int:
        return self.usage.get("completion_tokens") or 0

    @property
    def reasoning_tokens(self) -> int | None:
        """Tokens of the thought by the server's own usage."""
        return (self.usage.get("completion_tokens_details") or {}).get("reasoning_tokens")


@dataclass
class Client:
    """Sends requests and counts the tokens of their thoughts. `tick` is called after each response; `encode` is a
    tokenizer's; without one the server's own is used, if it has one."""

    server: HttpServer
    api: Api
    tokens: int
    tick: Callable[[], None]
    encode: Callable[[str], Ids] | None = None
    counted_by: Literal["ids", "text", "usage", ""] = ""
    sent: int = 0
    form: Sequence[str] = ()
    places: set[str] = field(default_factory=set)
    """Where thoughts were: "apart", or before a mark in the "text"."""
    marks: tuple[Ids, Ids] = ((), ())
    """Ids that open and that end a thought."""

    async def begin(self, questions: Sequence[str]) -> list[Answer]:
        """Find the form of requests that the server takes, and what tells the length of a thought; return responses
        without a budget. Raises UserError when it takes none of them, or nothing tells."""
        refusal = ""
        for form in _FORMS if self.api == "chat" else _FORMS[2:3]:
            self.form = form
            try:
                found = await self.ask(questions[0], 0, {})
                break
            except RequestFailed as error:
                refusal = reason(error)
        else:
            raise UserError(f"{self.server.address} takes no plain request: {refusal}")
        for i, question in enumerate(questions[1:], start=1):
            found += await self.ask(question, i, {})
        await self._find_counting(found)
        for each in found:
            await self._count(each)
        return found

    async def ask(
        self, question: str, seed: int, given: dict[str, Any], stream: bool = False, leave_after: int = 0
    ) -> list[Answer]:
        """The choices of a response to a request with the fields `given`. With `leave_after` the connection is closed
        after so many events, and there are none. Raises as `HttpServer.post`."""
        values = {"seed": seed, "return_token_ids": True}
        body: dict[str, Any] = {"model": self.server.address.model, "messages": [{"role": "user", "content": question}]}
        body |= {name: values.get(name, self.tokens) for name in self.form}
        body |= {"stream_options": {"include_usage": True}} if stream and self.api == "chat" else {}
        self.sent, began, number = self.sent + 1, time.monotonic(), 0
        answers: dict[int, Answer] = {}
        usage: dict[str, Any] = {}
        try:
            async with aclosing(self._events(body | given, stream)) as events:
                async for event in events:
                    number += 1
                    if number == leave_after:
                        return []
                    usage |= event.get("usage") or {}
                    for each in event.get("choices") or ():
                        answer = answers.setdefault(each.get("index", 0), Answer())
                        _add(answer, each)
                        if stream and answer.seconds is None and (answer.text or answer.arguments):
                            answer.seconds = time.monotonic() - began
        except (AttributeError, KeyError, TypeError, ValueError):
            answers.clear()  # Of another form.
        finally:
            self.tick()
        if not answers:
            raise RequestFailed("a response is not of the API's form, or is empty")
        for answer in answers.values():
            answer.usage = usage if len(answers) == 1 else {}
            if stream and len(answer.ids) < answer.sampled:
                answer.ids.clear()  # A proxy may drop events that have no text.
            place = "apart" if answer.thought else "text"
            if not answer.thought:  # Split off only where the server splits none.
                answer.thought, answer.text = split_thought(answer.text)
            self.places |= {place} if answer.thought else set()
            if self.counted_by:
                await self._count(answer)
        return list(answers.values())

    async def _events(self, body: dict[str, Any], stream: bool) -> AsyncGenerator[dict[str, Any]]:
        path = "/chat/completions" if self.api == "chat" else "/messages"
        if not stream:
            yield _as_chat(await self.server.post(path, body))
            return
        async with aclosing(self.server.stream(path, body)) as events:
            async for event in events:
                if event.get("error"):
                    raise RequestFailed(f"the stream ended with an error: {event['error']}")
                yield _as_chat(event)

    async def _encode(self, text: str) -> Ids:
        """Ids of a text without special tokens around it, by the tokenizer or the server's."""
        if self.encode is not None:
            return self.encode(text)
        body = {"model": self.server.address.model, "add_special_tokens": False, "prompt": text, "content": text}
        ids: list[int] = (await self.server.post("//tokenize", body)).get("tokens") or []
        return ids

    async def _find_counting(self, answers: Sequence[Answer]) -> None:
        """Choose what tells the length of a thought: ids, with the marks of a family; the text; or usage."""
        shown = next((each.thought for each in answers if each.thought.strip()), "")
        told = all((each.reasoning_tokens or 0) >= len(each.thought.split()) / 2 for each in answers)
        told = told and any(each.reasoning_tokens for each in answers)
        marks = []
        if any(each.ids for each in answers):
            for opened, ended in dict.fromkeys((each.open, each.ends[0]) for each in thoughts().values()):
                with suppress(RequestFailed, UserError):  # A vocabulary may lack a family's characters.
                    marks.append((await self._encode(opened), await self._encode(ended)))
        seen = [mark for mark in marks if any(_find(each.ids, mark[1]) is not None for each in answers)]
        # No thought may have ended. Unknown tokens have one id, whatever their text.
        single = [mark for mark in marks if len(mark[1]) == 1 and mark[0] != mark[1]]
        self.marks = max(seen, key=lambda mark: len(mark[1]), default=[*single, ((), ())][0])
        has_tokenizer = False
        with suppress(RequestFailed, UserError):
            has_tokenizer = bool(shown and await self._encode(shown))
        self.counted_by = "ids" if self.marks[1] else "text" if has_tokenizer else "usage" if told else ""
        if not self.counted_by:
            raise UserError(
                f"{self.server.address}: nothing tells how long its thoughts are: it returns no token ids and no true "
                + ("reasoning_tokens, and has no tokenizer; give one: --tokenizer" if shown else
                   "reasoning_tokens, and shows no thought; has it a reasoning parser, and does its model think?")
            )  # fmt: skip

    async def _count(self, answer: Answer) -> None:
        if self.places == {"text"} and not answer.thought and answer.finish == "length":
            answer.thought, answer.text = answer.text, ""  # It has not ended.
        opened, ended = self.marks
        answer.again = any(
            mark in answer.text for each in thoughts().values() if not each.text for mark in (each.open, *each.ends)
        )
        start = len(opened) if answer.ids[: len(opened)] == list(opened) else 0
        end = _find(answer.ids, ended, start)
        if self.counted_by == "usage":
            answer.count = answer.reasoning_tokens or 0
        elif end is not None:
            rest = answer.ids[end + len(ended) :]
            answer.count = end - start
            answer.again |= any(_find(rest, mark) is not None for mark in self.marks)
        elif self.marks[1] and answer.ids and not answer.text:
            answer.count = len(answer.ids) - start
        else:
            answer.by_text = bool(answer.thought.strip())
            answer.count = len(await self._encode(answer.thought)) if answer.by_text else 0


def reason(error: Exception) -> str:
    """A refusal without the address."""
    return str(error).rpartition("refused a request, ")[2]


def _find(ids: Ids, part: Ids, start: int = 0) -> int | None:
    places = range(start, len(ids) - len(part) + 1) if part else ()
    return next((at for at in places if list(ids[at : at + len(part)]) == list(part)), None)


def _add(answer: Answer, choice: Mapping[str, Any]) -> None:
    """Add a choice of a response, or of an event of its stream."""
    part = choice.get("delta") or choice.get("message") or {}
    answer.thought += part.get("reasoning") or part.get("reasoning_content") or ""
    answer.text += part.get("content") or ""
    for at, call in enumerate(part.get("tool_calls") or ()):
        if call.get("index", at) == 0:
            answer.arguments += call["function"].get("arguments") or ""
    answer.finish = choice.get("finish_reason") or answer.finish
    answer.ids += choice.get("token_ids") or ()
    answer.logprobs += (choice.get("logprobs") or {}).get("content") or ()


def _as_chat(document: dict[str, Any]) -> dict[str, Any]:
    """A message of Anthropic's API, or an event of its stream, as a chat's; a chat's as it is."""
    if "type" not in document:
        return document
    delta = document.get("delta") or {}
    blocks = document.get("content") or [delta]
    reason = str(document.get("stop_reason") or delta.get("stop_reason") or "")
    usage = (document.get("message") or document).get("usage") or {}
    calls = [json.dumps(each["input"]) if "input" in each else each.get("partial_json") or "" for each in blocks]
    part = {
        "reasoning": "".join(each.get("thinking") or "" for each in blocks),
        "content": "".join(each.get("text") or "" for each in blocks),
        "tool_calls": [{"index": 0, "function": {"arguments": "".join(calls)}}],
    }
    choice = {"delta": part, "finish_reason": _FINISHES.get(reason, reason)}
    told = {"completion_tokens": usage["output_tokens"]} if "output_tokens" in usage else {}
    return {"choices": [choice], "usage": told}
