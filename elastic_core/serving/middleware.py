"""ASGI middleware of `vllm serve`: a request's budget on the way in, token counts by phase on the way out and in the
registry that vLLM shows at /metrics."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import HTTPException
from prometheus_client import Counter

from elastic_core.budget import Budget
from elastic_core.engines.budgets.parameters import KEY
from elastic_core.models.marks import Marks
from elastic_core.serving.requests import VARIABLE, Kind, Plan, Refused, ServeConfiguration, parse, plan

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUDGETED: dict[str, Kind] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
"""Paths that keep budgets."""
_HARMLESS = {"/tokenize", "/detokenize", "/ping"}
"""Further paths that take a POST. vLLM's others generate without a budget, and are closed."""
_BODILESS = {"GET", "HEAD", "OPTIONS"}
"""Methods that generate nothing."""
MOST_BYTES = 32 * 2**20
"""Of a request's body: a million tokens of context as ids have 8 MiB."""
_DATA, _DONE, _END = b"data: ", b"[DONE]", b"\n\n"
_ANSWERED = Counter("elastic_requests", "Requests answered.", ["level"])
_ABANDONED = Counter("elastic_abandoned_requests", "Requests whose client left before the response.", ["level"])
_FORCED = Counter("elastic_forced_thoughts", "Thoughts that were closed at their budget.", ["level"])
_CUT = Counter("elastic_cut_solutions", "Solutions that were cut at their budget.", ["level"])
_TOKENS = Counter("elastic_tokens", "Tokens of responses.", ["level", "phase"])


class Budgets:
    """For `--middleware`; configured through the environment. vLLM's check of the key is inside it, so a body is read
    only when vLLM receives it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._config = ServeConfiguration.load(os.environ[VARIABLE])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["method"] in _BODILESS):
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif path in _HARMLESS:
            await self._app(scope, _bounded(receive), send)
        elif path in BUDGETED:
            await self._serve(BUDGETED[path], scope, receive, send)
        else:
            sentence = f"no budgets are kept at {path}; use {' or '.join(BUDGETED)}"
            error = {"message": sentence, "type": "NotFoundError", "param": None, "code": 404}
            await _answer(send, {"status": 404, "headers": []}, {"error": error})

    async def _serve(self, kind: Kind, scope: Scope, receive: Receive, send: Send) -> None:
        receive = _bounded(receive)
        sender: _Sender | None = None

        async def planned() -> Message:
            """The body for the engine. FastAPI turns what is raised here into a response."""
            nonlocal sender
            if sender is not None:
                return await receive()
            body = await _read(receive)
            if body is None:
                return {"type": "http.disconnect"}
            try:
                found = plan(kind, parse(body), self._config)
                edited = found.dump()
            except Refused as error:
                raise HTTPException(400, str(error)) from None
            sender = _Sender(Reply(found, self._config.marks), send)
            return {"type": "http.request", "body": edited, "more_body": False}

        async def respond(message: Message) -> None:
            await (sender or send)(message)

        try:
            await self._app(scope, planned, respond)
        finally:  # Tokens count for a client that left as well.
            if sender is not None:
                sender.count()


def _bounded(receive: Receive) -> Receive:
    left = MOST_BYTES

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(413, f"the request has more than {MOST_BYTES >> 20} MiB; expected fewer")
        return message

    return bounded


@dataclass
class Tally:
    """Tokens of one choice, counted as in a trajectory of `separate`: sampled ones of the thinking, with the model's
    own think-end, and of the solution; a think-end that was forced; and all of these. `solution_start` is None while
    the thought is open; `cut` is whether the solution was ended after s tokens."""

    budget: Budget
    marks: Marks
    solution_start: int | None
    thinking: int = 0
    solution: int = 0
    forced: int = 0
    length: int = 0
    cut: bool = False
    finish: str | None = None
    _last: int | None = None
    _thought: list[int] = field(default_factory=list)
    _closing: int = 0

    def add(self, tokens: Sequence[int]) -> int:
        """Count new tokens. Returns how many of them belong to the response: all but a cut's end-of-text."""
        for i, token in enumerate(tokens):
            if self.solution_start is None and self.length == self.budget.think:
                self._closing = len(self.marks.closing(self._thought))
                self.solution_start = None if self._closing else self.length
            if self.solution_start is None:
                self._think(token)
            elif self.length - self.solution_start == self.budget.solution:
                self.cut = True
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
            if self.forced == self._closing:
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


@dataclass
class Reply:
    """One request's response, edited in place."""

    plan: Plan
    marks: Marks
    tallies: dict[int, Tally] = field(default_factory=dict)
    _closed: bool = False

    def whole(self, document: dict[str, Any]) -> None:
        self._prompt(document)
        for choice in document["choices"]:
            self._choice(choice, choice.get("message"))
        _add_usage(document, list(self.tallies.values()))

    def event(self, document: dict[str, Any]) -> bool:
        """A chunk of a stream. Returns whether the client gets it: not a chunk of token ids alone."""
        self._prompt(document)
        choices = document.get("choices") or ()
        for choice in choices:
            self._choice(choice, choice.get("delta"))
        _add_usage(document, [self.tallies[choice["index"]] for choice in choices] or list(self.tallies.values()))
        return not choices or any(map(self._says_something, choices))

    def _says_something(self, choice: dict[str, Any]) -> bool:
        delta = choice.get("delta")
        if delta is None or self.plan.shows_ids or choice.get("finish_reason") or choice.get("logprobs"):
            return True
        return any(value is not None for value in delta.values())

    def _prompt(self, document: dict[str, Any]) -> None:
        """The prompt's ids, which vLLM sends of a chat here and of a completion in each choice."""
        prompt = document.get("prompt_token_ids")
        if prompt is not None:
            self._closed = self.marks.is_closed(prompt)
            if not self.plan.shows_ids:
                del document["prompt_token_ids"]

    def _choice(self, choice: dict[str, Any], message: dict[str, Any] | None) -> None:
        prompt = choice.get("prompt_token_ids")
        closed = self._closed if prompt is None else self.marks.is_closed(prompt)
        tally = self.tallies.get(choice["index"])
        if tally is None:
            tally = Tally(self.plan.budget, self.marks, 0 if closed else None)
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
            # A chat has one list, a completion several lists side by side.
            for values in (choice.get("logprobs") or {}).values():
                if isinstance(values, list):
                    del values[len(values) - (len(tokens) - kept) :]
        if message is not None and not self.plan.shows_reasoning:  # Then vLLM leaves these out.
            message.pop("reasoning", None)
            message.pop("reasoning_content", None)
            if thinking:
                choice["logprobs"] = None
        if not choice.get("finish_reason"):
            return
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


def _add_usage(document: dict[str, Any], tallies: Sequence[Tally]) -> None:
    usage = document.get("usage")
    if usage is not None:
        usage["completion_tokens"] = sum(tally.thinking + tally.solution for tally in tallies)
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        usage["completion_tokens_details"] = {
            **(usage.get("completion_tokens_details") or {}),
            "reasoning_tokens": sum(tally.thinking for tally in tallies),
            "forced_tokens": sum(tally.forced for tally in tallies),
        }


class _Sender:
    """Edits the messages of one response; errors pass unchanged."""

    def __init__(self, reply: Reply, send: Send) -> None:
        self._reply, self._send = reply, send
        self._counted = reply.plan.counted
        self._start: Message = {}
        self._answered = self._stream = self._ended = False
        self._pending = b""

    async def __call__(self, message: Message) -> None:
        if self._ended:
            return
        if message["type"] == "http.response.start" and message["status"] == 200:
            headers = dict(message["headers"])
            self._stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")
            self._answered = True
            if self._counted:
                self._start = message  # Sent with what follows.
                return
        if message["type"] != "http.response.body" or not self._answered or not self._counted:
            await self._send(message)
        elif self._stream:
            await self._events(message)
        else:
            self._pending += message.get("body", b"")
            if message.get("more_body"):
                return
            document = orjson.loads(self._pending)
            if document is not None:  # None when the client has left.
                self._reply.whole(document)
            await _answer(self._send, self._start, document)

    def count(self) -> None:
        level, tallies = self._reply.plan.level, self._reply.tallies.values()
        if not self._answered:
            return
        if self._counted and not tallies:  # vLLM aborted the request without a response: its tokens are not known.
            _ABANDONED.labels(level).inc()
            return
        _ANSWERED.labels(level).inc()
        for tally in tallies:
            _FORCED.labels(level).inc(tally.forced)
            _CUT.labels(level).inc(tally.is_cut)
            _TOKENS.labels(level, "thinking").inc(tally.thinking)
            _TOKENS.labels(level, "solution").inc(tally.solution)
            _TOKENS.labels(level, "forced").inc(tally.forced)

    async def _events(self, message: Message) -> None:
        """Where vLLM refuses a request in a stream's first event, the client gets the refusal's status."""
        *events, self._pending = (self._pending + message.get("body", b"")).split(_END)
        more = message.get("more_body", False)
        edited: list[bytes] = []
        for event in events:
            if not event.startswith(_DATA) or event[len(_DATA) :] == _DONE:
                edited.append(event + _END)
                continue
            document = orjson.loads(event[len(_DATA) :])
            if "error" in document and self._start:
                start = {**self._start, "status": int(document["error"].get("code") or 500)}
                self._answered, self._ended = False, True
                await _answer(self._send, start, document)
                return
            if "error" not in document and not self._reply.event(document):
                continue
            edited.append(_DATA + orjson.dumps(document) + _END)
        if more and not edited:
            return
        if self._start:
            await self._send(self._start)
            self._start = {}
        await self._send({"type": "http.response.body", "body": b"".join(edited), "more_body": more})


async def _read(receive: Receive) -> bytes | None:
    """A request's body, None when the client has left."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _answer(send: Send, start: Message, document: Any) -> None:
    """Send a JSON document with another response's headers."""
    body = orjson.dumps(document)
    own = {b"content-type": b"application/json", b"content-length": str(len(body)).encode()}
    headers = [(name, value) for name, value in start["headers"] if name.lower() not in own]
    await send({"type": "http.response.start", "status": start["status"], "headers": [*headers, *own.items()]})
    await send({"type": "http.response.body", "body": body})
