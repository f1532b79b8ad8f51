"""ASGI middleware of `vllm serve`: a request's budget on the way in, honest numbers on the way out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import orjson

from elastic_core.serving.counters import count
from elastic_core.serving.offer import VARIABLE, Offer
from elastic_core.serving.requests import Kind, Plan, Refused, plan
from elastic_core.serving.responses import Reply

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUDGETED: dict[str, Kind] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
"""Paths that keep budgets."""
_HARMLESS = {"/tokenize", "/detokenize", "/ping"}
"""Further paths that take a POST. Others of vLLM's generate without a budget, and are closed."""
_DATA, _DONE, _END = b"data: ", b"[DONE]", b"\n\n"


class Budgets:
    """For `--middleware`; its settings come by the environment."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._offer = Offer.load(os.environ[VARIABLE])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["method"] != "POST"):
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif path in _HARMLESS:
            await self._app(scope, receive, send)
        elif path in BUDGETED:
            await self._serve(BUDGETED[path], scope, receive, send)
        else:
            await _refuse(send, 404, f"no budgets are kept at {path}; use {' or '.join(BUDGETED)}")

    async def _serve(self, kind: Kind, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read(receive)
        if body is None:
            return
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):  # vLLM says what is wrong with it.
            await self._app(scope, _replaying(body, receive), send)
            return
        try:
            planned = plan(kind, document, self._offer)
        except Refused as error:
            await _refuse(send, 400, str(error))
            return
        edited = orjson.dumps(planned.body)
        sender = _Sender(planned, Reply(planned, self._offer.stops), send)
        try:
            await self._app(_with_length(scope, len(edited)), _replaying(edited, receive), sender)
        finally:  # A client that left has used tokens as well.
            if sender.answered:
                count(planned.level, sender.reply.tallies.values())


class _Sender:
    """Edits the messages of one response. Errors pass as they are."""

    def __init__(self, planned: Plan, reply: Reply, send: Send) -> None:
        self.reply = reply
        self.answered = False
        self._counted = planned.counted
        self._send = send
        self._start: Message | None = None
        self._stream = self._ended = False
        self._pending = b""

    async def __call__(self, message: Message) -> None:
        if self._ended:
            return
        if message["type"] == "http.response.start" and message["status"] == 200:
            headers = dict(message["headers"])
            self._stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")
            self.answered = True
            if self._counted:
                self._start = message  # Until it is known what follows.
                return
        if message["type"] != "http.response.body" or not self.answered or not self._counted:
            await self._send(message)
        elif self._stream:
            await self._events(message)
        else:
            await self._whole(message)

    async def _whole(self, message: Message) -> None:
        self._pending += message.get("body", b"")
        if message.get("more_body"):
            return
        document = orjson.loads(self._pending)
        self.reply.whole(document)
        body = orjson.dumps(document)
        assert self._start is not None
        await self._send(_with_length(self._start, len(body)))
        await self._send({"type": "http.response.body", "body": body})

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
            elif not self.reply.event(document):
                continue
            edited.append(_DATA + orjson.dumps(document) + _END)
        if more and not edited:
            return
        if self._start is not None:
            await self._send(self._start)
            self._start = None
        await self._send({"type": "http.response.body", "body": b"".join(edited), "more_body": more})

    async def _fail(self, document: dict[str, Any]) -> None:
        self.answered, self._start, self._ended = False, None, True
        await _answer(self._send, int(document["error"].get("code") or 500), document)


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


def _replaying(body: bytes, receive: Receive) -> Receive:
    """`receive` as if nobody had read the body yet."""
    left = [body]

    async def again() -> Message:
        return {"type": "http.request", "body": left.pop(), "more_body": False} if left else await receive()

    return again


def _with_length(holder: Any, length: int) -> Any:
    """A scope or a start of a response with another body."""
    headers = [(name, value) for name, value in holder["headers"] if name.lower() != b"content-length"]
    return {**holder, "headers": [*headers, (b"content-length", str(length).encode())]}


async def _refuse(send: Send, status: int, sentence: str) -> None:
    kind = "BadRequestError" if status == 400 else "NotFoundError"
    error = {"message": sentence, "type": kind, "param": None, "code": status}
    await _answer(send, status, {"error": error})


async def _answer(send: Send, status: int, document: dict[str, Any]) -> None:
    body = orjson.dumps(document)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
