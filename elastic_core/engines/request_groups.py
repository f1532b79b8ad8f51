"""Requests to another process in groups: one call per request would cost more than a small model's tokens.

Requests that are made within one tick of the event loop travel in one call, and their replies come back in groups, each
as soon as it is there. The caller decides about requests of a server that died.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_core.engines.base import EngineLost

Numbered = tuple[int, Any]  # The number of a request, and the request, its reply or its error.

LINGER_SECONDS = 0.02
"""How long the first reply of a group waits for others. It delays no token: the engine's batch stays full."""


@dataclass
class Call:
    """A request that has no reply, and how many servers died under it."""

    request: Any
    future: asyncio.Future[Any]
    deaths: int = 0

    def settle(self, reply: Any) -> None:
        if self.future.done():
            return
        if isinstance(reply, Exception):
            self.future.set_exception(reply)
        else:
            self.future.set_result(reply)


class RequestGroups:
    """The caller's side. `submit` hands numbered requests to the server, or returns False when there is none: then they
    wait for the next `send`."""

    def __init__(self, submit: Callable[[list[Numbered]], bool]) -> None:
        self._submit = submit
        self._numbers = itertools.count()
        self.waiting: list[Call] = []
        self.in_flight: dict[int, Call] = {}

    async def ask(self, request: Any) -> Any:
        """The reply, or raises the error that came. Cancelled, the request goes on and its reply is dropped."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if not self.waiting:
            loop.call_soon(self.send)
        self.waiting.append(Call(request, future))
        return await future

    def send(self) -> None:
        numbered = {next(self._numbers): call for call in self.waiting}
        if numbered and self._submit([(number, call.request) for number, call in numbered.items()]):
            self.in_flight |= numbered
            self.waiting = []

    def resolve(self, replies: Sequence[Numbered]) -> None:
        for number, reply in replies:
            self.in_flight.pop(number).settle(reply)

    def take(self) -> list[Call]:
        """Everything in flight: the server is gone, so no reply will come."""
        calls, self.in_flight = list(self.in_flight.values()), {}
        return calls

    def fail(self, error: Exception) -> None:
        """Everything that has no reply raises the error."""
        for call in self.take() + self.waiting:
            call.settle(error)
        self.waiting = []


class Replies:
    """The server's side, for one caller; `generate` answers one request."""

    def __init__(self, generate: Callable[[Any], Awaitable[Any]]) -> None:
        self._generate = generate
        self._done: list[Numbered] = []
        self._news = asyncio.Event()
        self._lost: EngineLost | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, requests: Sequence[Numbered]) -> None:
        for number, request in requests:
            task = asyncio.create_task(self._answer(number, request))
            self._tasks.add(task)  # The loop itself holds tasks only weakly.
            task.add_done_callback(self._tasks.discard)

    async def collect(self) -> list[Numbered]:
        """Everything finished since the last call, at least one; raises EngineLost when the engine died."""
        await self._news.wait()
        await asyncio.sleep(LINGER_SECONDS)
        self._news.clear()
        if self._lost is not None:
            raise self._lost
        # Without an await since the event was cleared: a later reply sets it again.
        done, self._done = self._done, []
        return done

    async def _answer(self, number: int, request: Any) -> None:
        reply: Any
        try:
            reply = await self._generate(request)
        except EngineLost as error:
            reply = self._lost = error
        except Exception as error:  # The caller waits for a reply, whatever happened.
            reply = error
        self._done.append((number, reply))
        self._news.set()
