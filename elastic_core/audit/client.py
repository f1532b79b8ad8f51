"""Requests of an audit, and what comes back: the same for OpenAI's chats and Anthropic's messages, streamed or not."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from elastic_core.engines.base import RequestFailed
from elastic_core.engines.http_server import HttpServer
from elastic_core.errors import UserError
from elastic_core.models.families import split_thought, thoughts

Api = Literal["chat", "messages"]
PATHS: dict[Api, str] = {"chat": "/chat/completions", "messages": "/messages"}
_FORMS: dict[Api, list[dict[str, Any]]] = {
    "chat": [
        {"max_tokens": 0, "seed": 0, "return_token_ids": True},
        {"max_tokens": 0, "seed": 0},
        {"max_tokens": 0},
        {"max_completion_tokens": 0},
    ],
    "messages": [{"max_tokens": 0}],
}
"""Fields of every request, from those that tell most; the first form that the server takes is used."""
_FINISHES = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
Ids = Sequence[int]


@dataclass(frozen=True)
class Answer:
    """One choice of a response. `count` are tokens of the thought, None where nothing tells them; `again` is whether
    a mark of a thought comes after its end; `usage` is None of one choice among several; `seconds` until the first
    token of the answer, of a stream."""

    thought: str
    text: str
    calls: list[Mapping[str, Any]]
    finish: str
    usage: Mapping[str, Any] | None
    ids: Ids | None
    logprobs: list[Any] | None
    seconds: float | None
    count: int | None = None
    again: bool = False

    @property
    def sampled(self) -> int | None:
        return (self.usage or {}).get("completion_tokens")

    @property
    def reasoning_tokens(self) -> int | None:
        """Tokens of the thought by the server's own usage."""
        return ((self.usage or {}).get("completion_tokens_details") or {}).get("reasoning_tokens")


@dataclass
class Client:
    """Sends requests and counts the tokens of their thoughts. `tick` is called after each response; `encode` is a
    tokenizer's, None for the server's own if it has one."""

    server: HttpServer
    api: Api
    tokens: int
    tick: Callable[[], None]
    encode: Callable[[str], Ids] | None = None
    counted_by: Literal["ids", "text", "usage", "nothing"] = "nothing"
    sent: int = 0
    form: dict[str, Any] = field(default_factory=dict)
    _remote: bool = False
    _open: Ids = ()
    _end: Ids = ()

    async def begin(self, questions: Sequence[str]) -> list[Answer]:
        """Find the form of requests that the server takes, and what tells the length of a thought; return responses
        without a budget. Raises UserError when it takes none of them, or nothing tells."""
        for form in _FORMS[self.api]:
            self.form = form
            try:
                found = await self.ask(questions[0], 0)
                break
            except RequestFailed as error:
                refusal = reason(error)
        else:
            raise UserError(f"{self.server.address} takes no plain request: {refusal}")
        for i, question in enumerate(questions[1:], start=1):
            found += await self.ask(question, i)
        await self._find_counting(found)
        return [await self.counted(each) for each in found]

    async def ask(
        self,
        question: str | list[dict[str, Any]],
        seed: int,
        fields: Mapping[str, Any] | None = None,
        *,
        max_tokens: int | None = None,
        stream: bool = False,
        leave_after: int | None = None,
    ) -> list[Answer]:
        """The choices of a response. With `leave_after` the connection is closed after so many events, and there are
        none. Raises RequestFailed, ServerLost and UserError as `HttpServer.post`."""
        messages = [{"role": "user", "content": question}] if isinstance(question, str) else question
        values = {"seed": seed, "return_token_ids": True}
        most = max_tokens or self.tokens
        body: dict[str, Any] = {"model": self.server.address.model, "messages": messages}
        body |= {key: values.get(key, most) for key in self.form} | (fields or {})
        self.sent += 1
        began = time.monotonic()
        try:
            if not stream:
                document, first = await self.server.post(PATHS[self.api], body), None
                document = _chat(document)
            else:
                body |= {"stream_options": {"include_usage": True}} if self.api == "chat" else {}
                async with aclosing(self.server.stream(PATHS[self.api], body)) as events:
                    document, first = await _merge(events, leave_after)
        finally:
            self.tick()
        answers = read_answers(document, None if first is None else first - began)
        return [await self.counted(each) for each in answers] if self.counted_by != "nothing" else answers

    async def tokenized(self, text: str) -> Ids:
        """Ids of a text without special tokens around it; empty where there is no tokenizer."""
        if self.encode is not None:
            return self.encode(text)
        body = {"model": self.server.address.model, "add_special_tokens": False, "prompt": text, "content": text}
        found = (await self.server.post("//tokenize", body)).get("tokens") if self._remote else None
        return found if isinstance(found, list) else ()

    async def _find_counting(self, answers: Sequence[Answer]) -> None:
        self._remote = self.encode is None
        try:
            has_tokenizer = bool(await self.tokenized("36+6=?"))
        except (RequestFailed, UserError):
            self._remote = has_tokenizer = False
        if has_tokenizer and all(each.ids for each in answers):
            marks = [
                (await self.tokenized(each.open), await self.tokenized(each.ends[0])) for each in thoughts().values()
            ]
            seen = [mark for mark in marks if any(_find(each.ids or (), mark[1]) is not None for each in answers)]
            # No thought may have ended. An unknown token has one id, whatever its text.
            single = [mark for mark in marks if len(mark[1]) == 1 and mark[0] != mark[1]]
            self._open, self._end = max(seen, key=lambda mark: len(mark[1]), default=[*single, ((), ())][0])
        if self._end:
            self.counted_by = "ids"
        elif has_tokenizer and any(each.thought for each in answers):
            self.counted_by = "text"
        elif all((each.reasoning_tokens or 0) >= len(each.thought.split()) / 2 for each in answers) and any(
            each.reasoning_tokens for each in answers
        ):
            self.counted_by = "usage"
        else:
            shown = any(each.thought for each in answers)
            raise UserError(
                f"{self.server.address}: nothing tells how long its thoughts are: "
                + ("they are shown, but" if shown else "none are shown (no reasoning parser?), and")
                + " it returns no token ids, usage has no true reasoning_tokens"
                + ("; give the model's tokenizer: --tokenizer OWNER/NAME or a directory" if shown else "")
            )

    async def counted(self, answer: Answer) -> Answer:
        """The answer with the tokens of its thought."""
        again = has_marks(answer.text)
        if self.counted_by == "usage":
            return replace(answer, count=answer.reasoning_tokens, again=again)
        ids, opened, ended = answer.ids or (), self._open, self._end
        start = len(opened) if list(ids[: len(opened)]) == list(opened) else 0
        end = _find(ids, ended, start)
        if end is not None:
            rest = ids[end + len(ended) :]
            again = again or any(_find(rest, mark) is not None for mark in (opened, ended))
            count = end - start
        elif ids and not answer.text:
            count = len(ids) - start
        else:
            count = len(await self.tokenized(answer.thought)) if answer.thought.strip() else 0
        return replace(answer, count=count, again=again)


def has_marks(text: str) -> bool:
    """Whether a text has a mark of any family's thought."""
    return any(mark in text for family in thoughts().values() for mark in (family.open, *family.ends) if "<" in mark)


def reason(error: Exception) -> str:
    """A refusal without the address."""
    return str(error).rpartition("refused a request, ")[2]


def _find(ids: Ids, part: Ids, start: int = 0) -> int | None:
    places = range(start, len(ids) - len(part) + 1) if part else ()
    return next((at for at in places if list(ids[at : at + len(part)]) == list(part)), None)


def read_answers(document: Mapping[str, Any], seconds: float | None = None) -> list[Answer]:
    """The choices of a chat's response. A thought inside the text is split off only where the server splits none."""
    choices, found = document.get("choices") or [], []
    for choice in choices:
        message = choice.get("message") or {}
        text = message.get("content") or ""
        thought = message.get("reasoning") or message.get("reasoning_content") or ""
        if not thought:
            thought, text = split_thought(text)
        usage = document.get("usage") if len(choices) == 1 else None
        logprobs = (choice.get("logprobs") or {}).get("content")
        calls = [each.get("function") or {} for each in message.get("tool_calls") or []]
        finish = choice.get("finish_reason") or ""
        found.append(Answer(thought, text, calls, finish, usage, choice.get("token_ids"), logprobs, seconds))
    return found


async def _merge(events: AsyncIterator[dict[str, Any]], leave_after: int | None) -> tuple[dict[str, Any], float | None]:
    """The response that a stream adds up to, and when its answer began, by the monotonic clock."""
    choices: dict[int, dict[str, Any]] = {}
    usage, first, seen = None, None, 0
    async for event in events:
        if "error" in event:
            raise RequestFailed(f"the stream ended with an error: {event['error']}")
        seen += 1
        if leave_after is not None and seen > leave_after:
            return {}, None
        part = _chat(event)
        usage = {**(usage or {}), **(part.get("usage") or {})} or None
        for each in part.get("choices") or ():
            choice = choices.setdefault(each.get("index", 0), {"message": {}})
            delta, message = each.get("delta") or {}, choice["message"]
            for key in ("reasoning", "reasoning_content", "content"):
                message[key] = message.get(key, "") + (delta.get(key) or "")
            if first is None and (delta.get("content") or delta.get("tool_calls")):
                first = time.monotonic()
            for call in delta.get("tool_calls") or ():
                calls = message.setdefault("tool_calls", [])
                while len(calls) <= call.get("index", 0):
                    calls.append({"function": {"name": "", "arguments": ""}})
                for key, value in (call.get("function") or {}).items():
                    calls[call.get("index", 0)]["function"][key] += value or ""
            choice["finish_reason"] = each.get("finish_reason") or choice.get("finish_reason")
            if each.get("token_ids"):
                choice["token_ids"] = [*choice.get("token_ids", ()), *each["token_ids"]]
            if content := (each.get("logprobs") or {}).get("content"):
                choice.setdefault("logprobs", {"content": []})["content"] += content
    return {"choices": [choices[i] for i in sorted(choices)], "usage": usage}, first


def _chat(document: dict[str, Any]) -> dict[str, Any]:
    """A message of Anthropic's API, or an event of its stream, as a chat's; a chat's as it is."""
    kind = document.get("type")
    if kind == "message":
        blocks = document.get("content") or []
        joined = {
            name: "".join(each.get(key) or "" for each in blocks if each.get("type") == key)
            for name, key in (("reasoning", "thinking"), ("content", "text"))
        }
        calls = [{"function": {"name": b["name"], "arguments": b["input"]}} for b in blocks if b["type"] == "tool_use"]
        choice = {"message": {**joined, "tool_calls": calls}, "finish_reason": _finish(document)}
        return {"choices": [choice], "usage": _usage(document)}
    if kind == "message_start":
        return {"usage": _usage(document.get("message") or {})}
    if kind in ("content_block_delta", "message_delta"):
        delta = document.get("delta") or {}
        told = {"reasoning": delta.get("thinking"), "content": delta.get("text")}
        return {"choices": [{"delta": told, "finish_reason": _finish(delta)}], "usage": _usage(document)}
    return {} if kind else document


def _finish(document: Mapping[str, Any]) -> str | None:
    told = document.get("stop_reason")
    return _FINISHES.get(told, told) if told else None


def _usage(document: Mapping[str, Any]) -> dict[str, Any]:
    told = document.get("usage") or {}
    return {"completion_tokens": told["output_tokens"]} if told.get("output_tokens") is not None else {}
