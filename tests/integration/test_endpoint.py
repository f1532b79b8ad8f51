"""A sweep of a real vLLM server is the sweep of an engine of ours: row by row, also when the server dies in between.
Every day test_serve.py shows the first of `elastic serve`."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from elastic_core.engines.endpoint import Endpoint, EndpointParameters, parse_address
from elastic_core.engines.http import HttpEngine, http_pool
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.vllm import VllmEngine
from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models.special_tokens import load_markers
from elastic_core.strategies import Completion, Finish, Generate, Sampling
from elastic_core.system.network import free_ports
from flows.runtime.endpoints import find_endpoints
from tests.api_server import ApiServer, listening
from tests.exactness import broken_rules
from tests.swept import NUM_PROBLEMS, NUM_SAMPLES, SAMPLING, Swept, grid, sweep
from tests.vllm_server import VllmServer

CONTEXT = 320
STRATEGIES = ("vanilla", "budget_forcing", "budget_forcing_wait1", "separate", "l1_exact", "unconstrained")
API_KEY = "s3cret-key-of-the-server"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """Of an engine of ours."""

    async def swept() -> Swept:
        engine = VllmEngine(str(BASE), EngineParameters(max_model_len=CONTEXT, max_num_seqs=64))
        try:
            return await sweep(engine, tmp_path_factory.mktemp("local"), STRATEGIES)
        finally:
            engine.shutdown()

    return asyncio.run(swept())


@pytest.fixture(scope="module")
def key() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTIC_API_KEY_BASE", API_KEY)
        yield


@pytest.fixture(scope="module")
def server(key: None, local: Swept, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """After the local sweep, as two cores are few for both."""
    (port,) = free_ports(1)
    with VllmServer(port, tmp_path_factory.mktemp("server") / "log", CONTEXT, key=API_KEY) as server:
        yield server


@pytest.fixture(scope="module")
def endpoint(server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> Endpoint:
    behind = {"base": (parse_address(server.address),)}
    parameters = EndpointParameters(max_requests=64, wait_seconds=300)
    return find_endpoints(behind, {"base": str(BASE)}, parameters, tmp_path_factory.mktemp("runs"))["base"]


async def sweep_endpoint(endpoint: Endpoint, directory: Path, harm: type | None = None, *given: object) -> Swept:
    async with http_pool({"base": endpoint}) as (replica,):
        return await sweep(harm(replica["base"], *given) if harm else replica["base"], directory, STRATEGIES)


@pytest.mark.slow
def test_the_server_says_what_it_runs(endpoint: Endpoint) -> None:
    assert (endpoint.served.server, endpoint.context) == ("vllm", CONTEXT)
    assert endpoint.served.version[0].isdigit() and endpoint.served.root == str(BASE)


@pytest.mark.slow
def test_its_rows_are_those_of_an_engine_of_ours(local: Swept, endpoint: Endpoint, tmp_path: Path) -> None:
    served = asyncio.run(sweep_endpoint(endpoint, tmp_path))
    assert served.rows.height == len(grid(STRATEGIES)) * NUM_PROBLEMS * NUM_SAMPLES and broken_rules(served.rows) == {}
    assert set(served.rows["think_finish"]) >= {"closed", "forced"}
    assert served.rows.equals(local.rows)
    assert served.result.tokens_generated == local.result.tokens_generated
    assert served.result.tokens_reused == local.result.tokens_reused


@dataclass
class Killing:
    """Ends the server while requests are under way, and starts it anew."""

    engine: HttpEngine
    harm: Callable[[], None]
    start: Callable[[], None]
    after: int = 60
    completions: int = 0

    async def generate(self, request: Generate, seed: int) -> Completion:
        completion = await self.engine.generate(request, seed)
        self.completions += 1
        if self.completions == self.after:
            self.harm()
            self.start()
        return completion


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["kill", "stop"])
def test_a_server_that_ends_and_is_started_again_costs_no_row_and_repeats_none(
    local: Swept, endpoint: Endpoint, server: VllmServer, tmp_path: Path, harm: str
) -> None:
    served = asyncio.run(sweep_endpoint(endpoint, tmp_path, Killing, getattr(server, harm), server.start))
    assert served.rows.equals(local.rows)
    assert served.result.tokens_generated == local.result.tokens_generated


@pytest.mark.slow
def test_completions_end_as_those_of_an_engine_of_ours(endpoint: Endpoint) -> None:
    _, markers = load_markers(BASE)

    async def complete(*requests: Generate) -> list[Completion]:
        async with http_pool({"base": endpoint}) as (replica,):
            return [await replica["base"].generate(request, 1) for request in requests]

    start = markers.think_start
    (free,) = asyncio.run(complete(Generate(start, None, (), SAMPLING)))
    assert (len(free.tokens), free.finish) == (CONTEXT - 1, Finish.LENGTH)
    stop = free.tokens[20]
    full, ended, nearly = asyncio.run(
        complete(
            Generate((5,) * CONTEXT, 4, (), SAMPLING),
            Generate(start, None, (stop,), SAMPLING),
            Generate((5,) * (CONTEXT - 3), 9, (), Sampling(logprobs=True)),
        )
    )
    assert full == Completion((), Finish.LENGTH)
    assert ended == Completion(free.tokens[: free.tokens.index(stop) + 1], Finish.STOP)
    assert len(nearly.tokens) == 3 and nearly.logprobs is not None and all(each <= 0 for each in nearly.logprobs)


@pytest.fixture(scope="module")
def drawn(key: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A server that wants a key, knows nothing of budgets, and draws from no model."""
    with listening(ApiServer(load_markers(BASE)[0], key=API_KEY)) as api:
        behind = {"base": (parse_address(api.address),)}
        yield find_endpoints(behind, {"base": str(BASE)}, EndpointParameters(), tmp_path_factory.mktemp("runs"))["base"]


def test_a_server_without_budgets_is_not_asked_to_keep_one(drawn: Endpoint) -> None:
    async def opened() -> None:
        async with http_pool({"base": drawn}, keeps_budgets=True):
            raise AssertionError("it was opened")

    with pytest.raises(UserError, match="keeps no budgets; start it with `elastic serve`, or use separate"):
        asyncio.run(opened())


def test_a_server_that_wants_a_key_and_gets_none_says_which_variable(
    drawn: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ELASTIC_API_KEY_BASE")
    with pytest.raises(UserError, match=r"refused no key .* set ELASTIC_API_KEY_BASE in the environment"):
        find_endpoints({"base": drawn.addresses}, {"base": str(BASE)}, drawn.parameters, tmp_path)
