"""ASGI middleware of `vllm serve`: a request's budget on the way in, honest numbers on the way out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import HTTPException

from elastic_core.serving.configuration import VARIABLE, Offer
from elastic_core.serving.counters import count, count_abandoned
from elastic_core.serving.requests import Kind, Refused, parse, plan
from elastic_core.serving.responses import Reply

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUDGETED: dict[str, Kind] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
"""Paths that keep budgets."""
_HARMLESS = {"/tokenize", "/detokenize", "/ping"}
"""Further paths that take a POST. Others of vLLM's generate without a budget, and are closed."""
_BODILESS = {"GET", "HEAD", "OPTIONS"}
"""Methods that generate nothing."""
MOST_BYTES = 32 * 2**20
"""Of a request's body: a million tokens of context as ids have 8 MiB."""
_DATA, _DONE, _END = b"data: ", b"[DONE]", b"\n\n"


class Budgets:
    """For `--middleware`; its settings come by the environment. vLLM puts it around its check of the key and its CORS
    headers, so nothing of a body is read until vLLM asks for it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._offer = Offer.load(os.environ[VARIABLE])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["method"] in _BODILESS):
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif path in _HARMLESS:
            await self._app(scope, _Bounded(receive), send)
        elif path in BUDGETED:
            await self._serve(BUDGETED[path], scope, receive, send)
        else:
            sentence = f"no budgets are kept at {path}; use {' or '.join(BUDGETED)}"
            error = {"message": sentence, "type": "NotFoundError", "param": None, "code": 404}
            await _answer(send, {"status": 404, "headers": []}, {"error": error})

    async def _serve(self, kind: Kind, scope: Scope, receive: Receive, send: Send) -> None:
        receive = _Bounded(receive)
        sender: _Sender | None = None

        async def planned() -> Message:
            """The body as the engine gets it. FastAPI answers what is raised here as vLLM's own refusals."""
            nonlocal sender
            if sender is not None:
                return await receive()
            body = await _read(receive)
            if body is None:
                return {"type": "http.disconnect"}
            try:
                found = plan(kind, parse(body), self._offer)
                edited = found.dump()
            except Refused as error:
                raise HTTPException(400, str(error)) from None
            sender = _Sender(Reply(found, self._offer.stops), send)
            return {"type": "http.request", "body": edited, "more_body": False}

        async def respond(message: Message) -> None:
            await (sender or send)(message)

        try:
            await self._app(scope, planned, respond)
        finally:  # A client that left has used tokens as well.
            if sender is not None:
                sender.count()


class _Bounded:
    """Reads a request's body up to a size."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = MOST_BYTES

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HTTPException(413, f"the request has more than {MOST_BYTES >> 20} MiB; expected fewer")
        return message


class _Sender:
    """Edits the messages of one response. Errors pass as they are."""

    def __init__(self, reply: Reply, send: Send) -> None:
        self._reply, self._send = reply, send
        self._counted = reply.plan.counted
        self._start: Message | None = None
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
                self._start = message  # Until it is known what follows.
                return
        if message["type"] != "http.response.body" or not self._answered or not self._counted:
            await self._send(message)
        elif self._stream:
            await self._events(message)
        else:
            await self._whole(message)

    def count(self) -> None:
        """Add what was answered to the counters."""
        level, tallies = self._reply.plan.level, self._reply.tallies.values()
        if self._answered and (tallies or not self._counted):
            count(level, tallies)
        elif self._answered:
            count_abandoned(level)

    async def _whole(self, message: Message) -> None:
        self._pending += message.get("body", b"")
        if message.get("more_body"):
            return
        assert self._start is not None
        document = orjson.loads(self._pending)
        if document is not None:  # As it is when the client has left.
            self._reply.whole(document)
        await _answer(self._send, self._start, document)

    async def _events(self, message: Message) -> None:
        """vLLM refuses a streamed request in its first event; the client gets a refusal's status."""
        *events, self._pending = (self._pending + message.get("body", b"")).split(_END)
        more = message.get("more_body", False)
        edited: list[bytes] = []
        for event in events:
            if not event.startswith(_DATA) or event[len(_DATA) :] == _DONE:
                edited.append(event + _END)
                continue
            document = orjson.loads(event[len(_DATA) :])
            if "error" in document:
                if self._start is not None:
                    await self._fail(document)
                    return
            elif not self._reply.event(document):
                continue
            edited.append(_DATA + orjson.dumps(document) + _END)
        if more and not edited:
            return
        if self._start is not None:
            await self._send(self._start)
            self._start = None
        await self._send({"type": "http.response.body", "body": b"".join(edited), "more_body": more})

    async def _fail(self, document: dict[str, Any]) -> None:
        assert self._start is not None
        start = {**self._start, "status": int(document["error"].get("code") or 500)}
        self._answered, self._start, self._ended = False, None, True
        await _answer(self._send, start, document)


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
    """A response of one JSON document under the headers of another one."""
    body = orjson.dumps(document)
    own = {b"content-type": b"application/json", b"content-length": str(len(body)).encode()}
    headers = [(name, value) for name, value in start["headers"] if name.lower() not in own]
    await send({"type": "http.response.start", "status": start["status"], "headers": [*headers, *own.items()]})
    await send({"type": "http.response.body", "body": body})
