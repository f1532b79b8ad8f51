"""Requests of rollouts in groups: few calls, and no request waits for another's end."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from omegaconf import OmegaConf

from elastic_core.engines.request_groups import Numbered, Replies
from elastic_core.training.grpo.server import GroupedClient


async def generate(request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> SimpleNamespace:
    """Takes as many milliseconds as its parameters say; a negative number is refused."""
    await asyncio.sleep(abs(sampling_params["ms"]) / 1000)
    if sampling_params["ms"] < 0:
        raise ValueError("a negative number")
    return SimpleNamespace(token_ids=prompt_ids, extra_fields={"global_steps": 7})


class Server:
    """As a Ray actor is called."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.dead = asyncio.Event()
        self.replies = Replies(lambda request: generate(**request))
        self.submit_group = SimpleNamespace(remote=self._submit)
        self.collect_group = SimpleNamespace(remote=self._collect)

    def _submit(self, client: str, requests: list[Numbered]) -> None:
        self.sizes.append(len(requests))
        self.replies.submit(requests)

    async def _collect(self, client: str) -> list[Numbered]:
        found = await self.replies.collect()
        if self.dead.is_set():
            raise ConnectionError("the actor died")
        return found


def asked(what: Callable[[GroupedClient], Awaitable[Any]], number: int = 1) -> tuple[Any, list[list[int]]]:
    """What it returns with a client of so many servers, and the sizes of the groups that each got."""

    async def run() -> tuple[Any, list[list[int]]]:
        servers = [Server() for _ in range(number)]
        found = await what(GroupedClient(OmegaConf.create(), servers))
        return found, [server.sizes for server in servers]

    return asyncio.run(run())


async def ask(client: GroupedClient, number: int, ms: float = 1, rollout: str | None = None) -> Any:
    return await client.generate(rollout or uuid4().hex, prompt_ids=[number], sampling_params={"ms": ms})


def test_requests_of_one_moment_are_one_call_and_each_gets_its_own_answer() -> None:
    async def many(client: GroupedClient) -> list[Any]:
        return await asyncio.gather(*(ask(client, number) for number in range(200)))

    found, sizes = asked(many)
    assert [output.token_ids for output in found] == [[number] for number in range(200)]
    assert found[0].extra_fields == {"global_steps": 7, "min_global_steps": 7, "max_global_steps": 7}
    assert sizes == [[200]]


def test_who_is_answered_goes_on_while_others_of_the_group_are_not() -> None:
    async def race(client: GroupedClient) -> bool:
        slow = asyncio.create_task(ask(client, 0, ms=60_000))
        await ask(client, 1)
        await ask(client, 2)
        return slow.cancel()

    still_running, sizes = asked(race)
    assert still_running and sizes == [[2, 1]]


def test_an_error_is_that_of_one_request() -> None:
    async def both(client: GroupedClient) -> list[Any]:
        return await asyncio.gather(ask(client, 0, ms=-1), ask(client, 1), return_exceptions=True)

    (error, output), _ = asked(both)
    assert isinstance(error, ValueError) and output.token_ids == [1]


def test_a_server_that_dies_fails_what_it_had() -> None:
    async def killed(client: GroupedClient) -> None:
        running = asyncio.create_task(ask(client, 0, ms=200))
        await ask(client, 1)
        client._servers[0].dead.set()
        await running

    with pytest.raises(ConnectionError, match="the actor died"):
        asked(killed)


def test_a_rollout_stays_with_one_server_and_rollouts_are_spread() -> None:
    async def many(client: GroupedClient) -> None:
        await asyncio.gather(*(ask(client, 0) for _ in range(64)))
        rollout = uuid4().hex
        for _ in range(3):
            await ask(client, 0, rollout=rollout)

    _, sizes = asked(many, number=2)
    assert all(each and each[0] > 10 for each in sizes)
    assert sorted(len(each) for each in sizes) == [1, 4]
