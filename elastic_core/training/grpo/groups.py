"""Requests of rollouts in groups, for engines so fast that one Ray call per request costs more than its tokens.

Requests that are made within one tick of the event loop travel to a server in one call, and their completions come back
in groups, each as soon as it is there. The server's side is in server.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID, uuid4

from verl.workers.rollout.llm_server import LLMServerClient

LINGER_SECONDS = 0.02
"""How long the first completion of a group waits for company. It delays no token: while requests queue, the engine's
batch stays full."""

Request = dict[str, Any]
"""Keyword arguments of the server's `generate`."""


async def answers(
    generate: Callable[..., Coroutine[Any, Any, Any]], requests: Sequence[Request]
) -> AsyncIterator[list[tuple[int, Any]]]:
    """The server's side: number and output, or error, of each request, in groups as they are answered."""
    running = {asyncio.create_task(generate(**request)): number for number, request in enumerate(requests)}
    while running:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(LINGER_SECONDS)
        done = [task for task in running if task.done()]
        yield [(running.pop(task), task.exception() or task.result()) for task in done]


class GroupedClient(LLMServerClient):  # type: ignore[misc]
    """The worker's side, in place of verl's client.

    Args:
        servers: Ray actors with a method `generate_group`. A rollout's requests go to the same one, whose prefix cache
            holds its thought; which, its id decides, without asking verl's load balancer each time.
    """

    def __init__(self, config: Any, servers: Sequence[Any], **more: Any) -> None:
        super().__init__(config, **more)
        self._servers = list(servers)
        self._waiting: dict[int, list[tuple[Request, asyncio.Future[Any]]]] = {}
        self._groups: set[asyncio.Task[None]] = set()

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **more: Any
    ) -> Any:
        """See verl's; raises what the server raised.

        Args:
            request_id: of the rollout, a UUID.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        place = UUID(request_id).int % len(self._servers)
        if not self._waiting.get(place):
            loop.call_soon(self._send, place)
        request = {"request_id": uuid4().hex, "prompt_ids": prompt_ids, "sampling_params": sampling_params} | more
        self._waiting.setdefault(place, []).append((request, future))
        output = await future
        step = output.extra_fields.get("global_steps")
        output.extra_fields |= {"min_global_steps": step, "max_global_steps": step}
        return output

    def _send(self, place: int) -> None:
        task = asyncio.create_task(self._follow(self._servers[place], self._waiting.pop(place)))
        self._groups.add(task)  # The loop itself holds tasks only weakly.
        task.add_done_callback(self._groups.discard)

    async def _follow(self, server: Any, group: list[tuple[Request, asyncio.Future[Any]]]) -> None:
        try:
            async for reference in server.generate_group.remote([request for request, _ in group]):
                for number, output in await reference:
                    _settle(group[number][1], output)
        except Exception as error:  # The server is gone, and all that was left with it.
            for _, future in group:
                _settle(future, error)


def _settle(future: asyncio.Future[Any], output: Any) -> None:
    if future.done():
        return
    if isinstance(output, BaseException):
        future.set_exception(output)
    else:
        future.set_result(output)
