"""A server that says no, later, or nothing, asked by the client that a sweep asks it with."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from elastic_core.engines import http_server
from elastic_core.engines.base import RequestFailed
from elastic_core.engines.endpoint import Address, Endpoint, EndpointParameters, parse_address
from elastic_core.engines.http import http_pool
from elastic_core.engines.http_server import HttpServer, ServerLost, look
from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models.special_tokens import load_markers
from elastic_core.strategies import Completion, Generate, Sampling
from elastic_core.system.network import free_ports
from tests.api_server import CONTEXT, ApiServer, Fault, listening

BODY = {"model": "drawn", "prompt": [1, 2, 3], "max_tokens": 4, "seed": 1}
REQUEST = Generate((1, 2, 3), 4, (), Sampling())


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt is as good at once."""
    monkeypatch.setattr(http_server, "_FIRST_WAIT", 0.05)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with listening(ApiServer(load_markers(BASE)[0])) as api:
        yield api


def ask(address: Address, requests: int = 1, **parameters: Any) -> list[dict[str, Any]]:
    async def all_of_them() -> list[dict[str, Any]]:
        async with HttpServer("served", address, EndpointParameters(**parameters)) as server:
            return await asyncio.gather(*(server.post("/completions", BODY) for _ in range(requests)))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("fault", [Fault(0), Fault(429), Fault(500), Fault(502), Fault(503), Fault(504)], ids=str)
def test_what_may_be_gone_at_the_next_attempt_is_tried_again(api: ApiServer, fault: Fault) -> None:
    api.faults = [fault]
    assert ask(parse_address(api.address)) == [api.draw(BODY)]
    assert len(api.arrivals) == 2


def test_a_server_is_given_the_time_that_it_asks_for(api: ApiServer) -> None:
    api.faults = [Fault(429, retry_after=1)]
    ask(parse_address(api.address))
    assert api.arrivals[1] - api.arrivals[0] >= 1


def test_a_request_that_breaks_the_server_fails_alone(api: ApiServer) -> None:
    api.faults = [Fault(500, message="a bug of the server's")] * 3
    with pytest.raises(RequestFailed, match=r"3 times .*HTTP 500: a bug of the server's"):
        ask(parse_address(api.address))
    assert len(api.arrivals) == 3


def test_a_request_that_is_refused_is_not_sent_again(api: ApiServer) -> None:
    api.faults = [Fault(400, message="too long")]
    with pytest.raises(RequestFailed, match="HTTP 400: too long"):
        ask(parse_address(api.address))
    assert len(api.arrivals) == 1


@pytest.mark.parametrize("fault", [Fault(503), Fault(429, retry_after=300), Fault(200, seconds=5)], ids=str)
def test_a_server_that_stays_away_is_waited_for_as_long_as_told(api: ApiServer, fault: Fault) -> None:
    api.faults = [fault] * 100
    began = time.monotonic()
    with pytest.raises(ServerLost, match=r"#drawn .* 1 s \(endpoint.wait_seconds\)"):
        ask(parse_address(api.address), wait_seconds=1, timeout_seconds=0.5)
    assert time.monotonic() - began >= 1


def test_a_server_that_comes_back_within_that_time_answers(api: ApiServer) -> None:
    (port,) = free_ports(1)
    answers: list[Any] = []
    address = Address(f"http://127.0.0.1:{port}/v1", "drawn")
    asking = threading.Thread(target=lambda: answers.extend(ask(address, wait_seconds=600)))
    asking.start()
    time.sleep(0.3)
    assert not answers
    with listening(api, port):
        asking.join()
    assert answers == [api.draw(BODY)]


def test_requests_that_a_stopped_server_keeps_open_are_given_up(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vLLM after SIGTERM: it listens no more, and answers nothing of what it has."""
    monkeypatch.setattr(http_server, "_LOOK_SECONDS", 0.2)
    stopped = ApiServer(api.tokenizer, faults=[Fault(200, seconds=60)])
    with ThreadPoolExecutor(1) as asking:
        with listening(stopped):
            answer = asking.submit(ask, parse_address(stopped.address), wait_seconds=1)
            while not stopped.arrivals:
                time.sleep(0.01)
        with pytest.raises(ServerLost):
            answer.result()


def test_no_more_requests_are_under_way_than_allowed(api: ApiServer) -> None:
    api.seconds = 0.05
    ask(parse_address(api.address), requests=20, max_requests=3)
    assert api.at_once <= 3 and len(api.drawn) == 20


def test_a_key_that_is_refused_names_its_variable_and_is_not_repeated(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.key = "right"
    with pytest.raises(UserError, match="ELASTIC_API_KEY_SERVED"):
        ask(parse_address(api.address))
    monkeypatch.setenv("ELASTIC_API_KEY_SERVED", "s3cret")
    with pytest.raises(UserError, match=r"HTTP 401: no such key: Bearer \*\*\*") as refused:
        ask(parse_address(api.address))
    assert "s3cret" not in str(refused.value)
    monkeypatch.setenv("ELASTIC_API_KEY_SERVED", "right")
    assert ask(parse_address(api.address)) == [api.draw(BODY)]


def described(api: ApiServer, *others: ApiServer) -> Endpoint:
    """As a sweep has it: what the first server says."""
    addresses = tuple(parse_address(each.address) for each in (api, *others))

    async def served() -> Any:
        async with HttpServer("served", addresses[0], EndpointParameters(wait_seconds=0)) as server:
            return await look(server, addresses[0].model)

    return Endpoint("served", addresses, asyncio.run(served()), BASE, EndpointParameters(wait_seconds=0))


def open_pool(endpoint: Endpoint) -> list[Completion]:
    """One completion of each replica."""

    async def complete() -> list[Completion]:
        async with http_pool({"served": endpoint}) as replicas:
            return [await replica["served"].generate(REQUEST, 5) for replica in replicas]

    return asyncio.run(complete())


def test_a_server_says_what_it_runs(api: ApiServer) -> None:
    served = described(api).served
    assert (served.server, served.version, served.root, served.context) == ("vllm", "1.2.3", "/models/drawn", CONTEXT)


def test_a_model_that_is_not_served_is_refused_with_those_that_are(api: ApiServer) -> None:
    async def served() -> None:
        address = Address(api.url, "other")
        async with HttpServer("served", address, EndpointParameters(wait_seconds=0)) as server:
            await look(server, "other")

    with pytest.raises(UserError, match=r'"other".* drawn '):
        asyncio.run(served())


def test_an_address_without_an_api_is_refused(api: ApiServer) -> None:
    api.url += "/v2"
    with pytest.raises(UserError, match="/v1/v2/models"):
        described(api)


def test_replicas_draw_the_same(api: ApiServer) -> None:
    with listening(ApiServer(api.tokenizer)) as other:
        one, two = open_pool(described(api, other))
    assert one == two and len(one.tokens) == 4
    assert api.drawn[-1] == other.drawn[-1]


def test_a_replica_that_runs_something_else_is_refused(api: ApiServer) -> None:
    with (
        listening(ApiServer(api.tokenizer, version="1.2.4")) as other,
        pytest.raises(UserError, match=r"vllm 1.2.4 .* vllm 1.2.3"),
    ):
        open_pool(described(api, other))


class Other:
    """Another tokenizer: one token's id is another's."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __len__(self) -> int:
        return len(self._tokenizer)

    def encode(self, text: str, **given: Any) -> list[int]:
        ids = self._tokenizer.encode(text, **given)
        return [ids[3] if token == ids[4] else token for token in ids]


def test_a_server_with_another_tokenizer_is_refused_before_anything_is_drawn(api: ApiServer) -> None:
    api.tokenizer = Other(api.tokenizer)
    with pytest.raises(UserError, match=r"base: token \d+ of a text is \[\d+\] there"):
        open_pool(described(api))
    assert all(body["max_tokens"] == 1 for body in api.drawn)


def test_a_server_that_returns_no_token_ids_is_refused_with_the_way_to_ask_it(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "draw", lambda body: {"choices": [{"text": "42", "finish_reason": "stop"}]})
    with pytest.raises(UserError, match=r"openai\+http://127"):
        open_pool(described(api))
