"""ASGI middleware of `vllm serve`: a request's budget on the way in; on the way out its counts in the response, and
counts of tokens by phase in the registry that vLLM shows at /metrics.

    vllm serve MODEL --middleware elastic_core.serving.middleware.Budgets --logits-processors ...
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from fastapi import HTTPException
from prometheus_client import Counter
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse

from elastic_core.engines import budgets
from elastic_core.engines.budgets.parameters import FIXED
from elastic_core.errors import UserError
from elastic_core.models.special_tokens import Markers, load_markers, render
from elastic_core.serving.admission import Admission
from elastic_core.serving.counting import CURRENT, Count, watch
from elastic_core.serving.dialects import EFFORT
from elastic_core.serving.levels import levels_beside
from elastic_core.serving.replies import Reply
from elastic_core.serving.requests import VARIABLE, Kind, Plan, Refused, ServeConfiguration, parse, plan
from elastic_core.strategies.variants import Closing
from elastic_core.system.network import LOCAL_PAGE, LOCAL_PAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUDGETED: dict[str, Kind] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
"""Paths that keep budgets."""
_HARMLESS = {"/tokenize", "/detokenize", "/ping", "/v1/messages/count_tokens"}
"""Further paths that take a POST. vLLM's others generate without a budget, and are closed."""
_BODILESS = {"GET", "HEAD", "OPTIONS"}  # Methods that generate nothing.
MOST_BYTES = 32 * 2**20  # Of a request's body: a million tokens of context as ids have 8 MiB.
MOST_WAITING = 256 * 2**20  # Of all bodies that are still being received, without the first
SMALL_BYTES = 2**18  # bytes of each, so that large ones that never end keep no usual request out.
_SLOWEST = 60.0  # Seconds between two pieces of a body.
_LOG = logging.getLogger("uvicorn.error")  # The server's log.
_KEYS = (b"x-api-key", b"api-key", b"x-goog-api-key")
"""Headers in which clients of Anthropic, Azure and Google give their key."""
_FIELD_ALONE = ("openai_gptoss", "mistral")
"""Reasoning parsers of models that vLLM renders without a chat template: they get the effort of the request's field."""
_ERRORS = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 503: "overloaded_error"}
"""Types of errors in Anthropic's API, by status."""
_DATA, _END = b"data: ", b"\n\n"
_ANSWERED = Counter("elastic_requests", "Requests answered.", ["level"])
_ABANDONED = Counter("elastic_abandoned_requests", "Requests whose client left before the response.", ["level"])
_FORCED = Counter("elastic_forced_thoughts", "Thoughts that were closed at their budget.", ["level"])
_CUT = Counter("elastic_cut_solutions", "Solutions that were cut at their budget.", ["level"])
_OVER = Counter("elastic_over_budget", "Responses that the engine drew beyond their budget.", ["level"])
_TOKENS = Counter("elastic_tokens", "Tokens of responses.", ["level", "phase"])


class _Served(NamedTuple):
    """The model behind the server."""

    config: ServeConfiguration
    markers: Markers
    tokenizer: Any
    worded: Mapping[str, Markers] = MappingProxyType({})

    @property
    def effort(self) -> str | None:
        """The default effort of such a model, "" for nothing; None of others."""
        return str(dict(self.markers.template).get(EFFORT, "")) if self.markers.parser in _FIELD_ALONE else None

    @classmethod
    def by(cls, engine: Any) -> _Served:
        """The model that a vLLM engine has, with its marks and levels; raises as `load_markers` and `levels_beside`,
        and a UserError where nothing keeps its budgets. A configuration in the environment comes first."""
        model = engine.model_config
        if not any(str(each).startswith(budgets.__name__) for each in model.logits_processors or ()):
            raise UserError("--logits-processors is missing; `elastic model vllm-flags` prints what vllm serve needs")
        watch(engine)
        tokenizer, markers = load_markers(model.tokenizer)
        if text := os.environ.get(VARIABLE):
            config = ServeConfiguration.load(text)
        else:
            found = levels_beside(Path(model.model))
            config = ServeConfiguration(**found.offered) if found else ServeConfiguration()
        templates = dict(config.template)
        try:
            templates |= {
                level: {**templates.get(level, {}), **markers.template_settings(each)}
                for level, each in config.efforts.items()
            }
            worded: dict[str, Markers] = {
                level: Closing.parse(each).of(tokenizer, markers) for level, each in config.closings.items()
            }
        except ValueError as error:
            raise UserError(f"the levels of {model.model}: {error}") from None
        config = replace(config, template=templates)
        for level, settings in config.template.items():
            try:
                render(tokenizer, [{"role": "user", "content": ""}], tokenize=False, **settings)
            except (UserError, TypeError) as error:  # A name that `render` has itself is the latter.
                raise UserError(f"the level {level} tells the chat template {dict(settings)}: {error}") from None
        return cls(config, markers, tokenizer, worded)


class Budgets:
    """ASGI middleware. vLLM's check of the key is inside it, so a body is read only when vLLM receives it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._served: _Served | None = None
        self._admission: Admission | None = None
        self._bodies = _Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._start(scope, receive, send)
            return
        app: ASGIApp = self._respond
        if args := getattr(scope["app"].state, "args", None):  # Responses made here, or for a wrong key, lack them.
            allowed = args.allowed_origins, args.allowed_methods, args.allowed_headers, args.allow_credentials
            app = cors = CORSMiddleware(app, *allowed, LOCAL_PAGE if LOCAL_PAGES in args.allowed_origins else None)
            origin = dict(scope["headers"]).get(b"origin")
            if origin is not None and not cors.is_allowed_origin(origin.decode("latin-1")):
                # A page that had its name point here (DNS rebinding) is no other origin to the browser.
                app = PlainTextResponse("pages of this origin may not ask; see --allowed-origins", 403)
        await app(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        if scope["type"] == "http":
            scope, send = _with_key(scope), _with_shape(path, send)
            if scope["method"] in _BODILESS:
                await self._app(scope, receive, send)
                return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif path in _HARMLESS:
            with self._bodies.bounded(receive) as bounded:
                await self._app(scope, bounded, send)
        elif path in BUDGETED:
            self._served = self._served or _Served.by(scope["app"].state.engine_client)
            with self._bodies.bounded(receive) as bounded:
                await self._serve(BUDGETED[path], self._served, scope, bounded, send)
        else:
            sentence = f"no budgets are kept at {path}; use {' or '.join(BUDGETED)}"
            error = {"message": sentence, "type": "NotFoundError", "param": None, "code": 404}
            await _answer(send, {"status": 404, "headers": []}, {"error": error})

    async def _start(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whatever fails here ends the server before it answers. An exception would not: under vLLM's lifespan "auto"
        uvicorn goes on without the lifespan, and so without this start."""
        try:
            engine = scope["app"].state.engine_client
            self._served = _Served.by(engine)
            if goal := self._served.config.goal:
                self._admission = await Admission.by(engine, goal)
        except Exception as error:
            if not isinstance(error, (OSError, ValueError, UserError)):
                _LOG.exception("the start failed")
            await receive()
            await send({"type": "lifespan.startup.failed", "message": f"no budgets can be kept: {error}"})
        else:
            await self._app(scope, receive, send)

    async def _serve(self, kind: Kind, served: _Served, scope: Scope, receive: Receive, send: Send) -> None:
        count = Count(served.markers, served.tokenizer, admission=self._admission)
        CURRENT.set(count)
        sender: _Sender | None = None
        request = Request(scope, receive)
        fixed = request.headers.get(FIXED, "").lower() in ("true", "1")

        async def planned() -> Message:
            """The body for the engine. FastAPI turns an exception here into a response."""
            nonlocal sender
            if sender is not None:
                return await receive()
            try:
                body = await request.body()
            except ClientDisconnect:
                return {"type": "http.disconnect"}
            try:
                found = plan(kind, parse(body), served.config, served.markers, fixed, served.effort, served.worded)
                edited = found.dump()
            except Refused as error:
                raise HTTPException(400, str(error)) from None
            count.plan = found
            if self._admission is not None:
                place, count.over = self._admission.arrive()
                if found.may_be_lowered:
                    count.plan = found = found.with_thought(
                        self._admission.most_thought(), found.marks or served.markers
                    )
                    edited = found.dump()
                if not await _is_served(place, receive):
                    return {"type": "http.disconnect"}
            sender = _Sender(found, count, Reply(kind, count, served.config.reasoning_content), send)
            return {"type": "http.request", "body": edited, "more_body": False}

        async def respond(message: Message) -> None:
            await (sender or send)(message)

        try:
            await self._app(scope, planned, respond)
        finally:  # Tokens count for a client that left as well.
            if sender is not None:
                sender.count()
            count.leave(sender is not None and sender.answered)


async def _is_served(place: asyncio.Event, receive: Receive) -> bool:
    """Wait until the engine has a place for a request that was received; False when its client leaves before. What
    waits in vLLM has been read, and answers wait behind that."""
    if place.is_set():
        return True
    served, left = asyncio.create_task(place.wait()), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({served, left}, return_when=asyncio.FIRST_COMPLETED)
        return not left.done()
    finally:
        served.cancel()
        left.cancel()


class _Bodies:
    """Bytes of large bodies that are being received, over all connections."""

    def __init__(self) -> None:
        self._waiting = 0

    @contextmanager
    def bounded(self, receive: Receive) -> Iterator[Receive]:
        """One connection's `receive`, which raises HTTPException on a body that is too large or slow, or comes while
        others hold all the room there is."""
        size = waiting = 0
        is_whole = False

        def wait_with(amount: int) -> None:
            nonlocal waiting
            self._waiting += amount - waiting
            waiting = amount

        async def bounded() -> Message:
            nonlocal size, is_whole
            if is_whole:
                return await receive()
            try:
                async with asyncio.timeout(_SLOWEST):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"nothing more of the request came for {_SLOWEST:g} s") from None
            size += len(message.get("body", b""))
            if size > MOST_BYTES:
                raise HTTPException(413, f"the request has more than {MOST_BYTES >> 20} MiB; expected fewer")
            is_whole = not message.get("more_body", False)
            wait_with(0 if is_whole else max(0, size - SMALL_BYTES))
            if self._waiting > MOST_WAITING:
                raise HTTPException(503, "other large requests are being received; send this one again")
            return message

        try:
            yield bounded
        finally:
            wait_with(0)


class _Sender:
    """Edits the messages of one response; errors pass unchanged."""

    def __init__(self, found: Plan, count: Count, reply: Reply, send: Send) -> None:
        self._plan, self._count, self._reply, self._send = found, count, reply, send
        self._start: Message = {}
        self.answered = self._stream = self._ended = False
        self._pending = b""

    async def __call__(self, message: Message) -> None:
        if self._ended:
            return
        if message["type"] == "http.response.start" and message["status"] == 200:
            self._stream = dict(message["headers"]).get(b"content-type", b"").startswith(b"text/event-stream")
            self.answered = True
            if self._plan.counted:
                self._start = message  # Sent with what follows.
                return
        if message["type"] != "http.response.body" or not self.answered or not self._plan.counted:
            await self._send(message)
        elif self._stream:
            await self._events(message)
        else:
            self._pending += message.get("body", b"")
            if message.get("more_body"):
                return
            document = orjson.loads(self._pending)
            if document is not None:  # None when the client has left.
                self._reply.edit(document)
            await _answer(self._send, self._start, document)

    def count(self) -> None:
        level, tallies = self._plan.level, self._count.tallies.values()
        if not self.answered:
            return
        is_seen = tallies if self._stream else any(tally.finish for tally in tallies)
        (_ANSWERED if is_seen or not self._plan.counted else _ABANDONED).labels(level).inc()
        for tally in tallies:
            _OVER.labels(level).inc(tally.excess > 0)
            _FORCED.labels(level).inc(tally.forced)
            _CUT.labels(level).inc(tally.is_cut)
            for phase in ("thinking", "solution", "forced", "excess"):
                _TOKENS.labels(level, phase).inc(getattr(tally, phase))
            if tally.rule:
                _TOKENS.labels(level, "probes").inc(tally.rule["probe_tokens"])
                _TOKENS.labels(level, "wasted").inc(tally.rule["wasted_tokens"])

    async def _events(self, message: Message) -> None:
        """Send a stream's events; a refusal of vLLM's in the first one becomes the response's status."""
        *events, self._pending = (self._pending + message.get("body", b"")).split(_END)
        more = message.get("more_body", False)
        for i, event in enumerate(events):
            is_refusal, concerns = self._start and b'"error"' in event, self._reply.concerns(event)
            if not is_refusal and not concerns:
                continue
            name, _, data = event.partition(_DATA)
            document = orjson.loads(data)
            if is_refusal and document.get("error"):
                code = document["error"].get("code")
                start = {**self._start, "status": code if isinstance(code, int) else 500}
                self.answered, self._ended = False, True
                await _answer(self._send, start, document)
                return
            if concerns:
                self._reply.edit(document)
            events[i] = name + _DATA + orjson.dumps(document)
        if more and not events:
            return
        if self._start:
            await self._send(self._start)
            self._start = {}
        body = b"".join(event + _END for event in events) + (b"" if more else self._pending)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


def _with_key(scope: Scope) -> Scope:
    """A request with its key in the header that vLLM reads."""
    headers = dict(scope["headers"])
    key = next((headers[name] for name in _KEYS if name in headers), None)
    if key is None or b"authorization" in headers:
        return scope
    return {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer " + key)]}


def _with_shape(path: str, send: Send) -> Send:
    """Send errors in the shape of the path's API, in which its clients look for the sentence."""
    start: Message | None = None
    text = b""

    async def shaped(message: Message) -> None:
        nonlocal start, text
        if message["type"] == "http.response.start" and message["status"] >= 400:
            start = message
        elif start is None:
            await send(message)
        else:
            text += message.get("body", b"")
            if message.get("more_body"):
                return
            try:
                document = _error(path, start["status"], orjson.loads(text))
            except orjson.JSONDecodeError:
                await send(start)
                await send({"type": "http.response.body", "body": text})
            else:
                await _answer(send, start, document)

    return shaped


def _error(path: str, status: int, document: Any) -> Any:
    error = document.get("error", document.get("detail")) if isinstance(document, dict) else None
    sentence = error.get("message") if isinstance(error, dict) else error
    if not isinstance(sentence, str):
        return document
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    if path.startswith("/v1/messages"):
        return {"type": "error", "error": {"type": kind, "message": sentence}}
    if error is not sentence:
        return document
    return {"error": {"message": sentence, "type": kind, "param": None, "code": status}}


async def _answer(send: Send, start: Message, document: Any) -> None:
    """Send a JSON document with another response's headers."""
    body = orjson.dumps(document)
    own = {b"content-type": b"application/json", b"content-length": str(len(body)).encode()}
    headers = [(name, value) for name, value in start["headers"] if name.lower() not in own]
    await send({"type": "http.response.start", "status": start["status"], "headers": [*headers, *own.items()]})
    await send({"type": "http.response.body", "body": body})
