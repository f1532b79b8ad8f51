"""A sweep of a real vLLM server is the sweep of an engine of ours: row by row, also when the server dies in between."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from elastic_core.budget import parse_grid
from elastic_core.data.problems import Problem
from elastic_core.engines.base import Engine, RequestFailed
from elastic_core.engines.endpoint import Endpoint, EndpointParameters, parse_address
from elastic_core.engines.http import HttpEngine, http_pool
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.vllm import VllmEngine
from elastic_core.errors import UserError
from elastic_core.markers import load_markers
from elastic_core.miniature.problems import generate
from elastic_core.miniature.warm_start import BASE
from elastic_core.network import free_ports
from elastic_core.strategies import Completion, Finish, Generate, Sampling
from elastic_core.sweep.executor import SweepResult, run_sweep
from elastic_core.sweep.grid import build_cells
from elastic_core.sweep.models import Prompts
from elastic_core.sweep.plan import plan_sweep
from elastic_core.sweep.rows import RowBuilder
from elastic_core.sweep.store import Manifest, TrajectoryStore
from elastic_core.trajectory import KEY
from flows.endpoints import find_endpoints
from tests.elastic_command import elastic
from tests.exactness import broken_rules
from tests.vllm_server import VllmServer

CONTEXT = 320
SAMPLING = Sampling(temperature=0.8, top_p=0.95)
CELLS = build_cells(
    ["base"],
    ["miniature-easy"],
    ["vanilla", "budget_forcing", "budget_forcing_wait1", "separate", "l1_exact", "unconstrained"],
    parse_grid(["0+24", "16+24", "48+24"]),
)
PROBLEMS = {
    "miniature-easy": [
        Problem("miniature-easy", str(i), chain.question, str(chain.answer), "math")
        for i, chain in enumerate(generate("easy", 8, seed=5, split="tune"))
    ]
}
API_KEY = "s3cret-key-of-the-server"

pytestmark = pytest.mark.timeout(900)


@dataclass
class Swept:
    """The whole table, sorted, and what the run did."""

    rows: pl.DataFrame
    result: SweepResult


async def sweep(engine: Engine, directory: Path) -> Swept:
    tokenizer, markers = load_markers(BASE)
    store = TrajectoryStore(directory)
    with store.writing(Manifest({"base": "model"}, {"base": "engine"}, {}, {})):
        plan = plan_sweep(CELLS, PROBLEMS, num_samples=2, seed=3, finished=store.finished())
        result = await run_sweep(
            plan,
            sampling=SAMPLING,
            prompts=Prompts(tokenizer),
            replicas=[{"base": engine}],
            rows=RowBuilder(tokenizer, markers, "model", "engine"),
            store=store,
        )
    return Swept(store.read().sort(KEY), result)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """Of an engine of ours."""

    async def swept() -> Swept:
        engine = VllmEngine(str(BASE), EngineParameters(max_model_len=CONTEXT, max_num_seqs=64))
        try:
            return await sweep(engine, tmp_path_factory.mktemp("local"))
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
        return await sweep(harm(replica["base"], *given) if harm else replica["base"], directory)


def test_the_server_says_what_it_runs(endpoint: Endpoint) -> None:
    assert (endpoint.served.server, endpoint.context) == ("vllm", CONTEXT)
    assert endpoint.served.version[0].isdigit() and endpoint.served.root == str(BASE)


def test_its_rows_are_those_of_an_engine_of_ours(local: Swept, endpoint: Endpoint, tmp_path: Path) -> None:
    served = asyncio.run(sweep_endpoint(endpoint, tmp_path))
    assert served.rows.height == len(CELLS) * 8 * 2 and broken_rules(served.rows) == {}
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


@pytest.mark.slow  # A second start of the server; what a client does meanwhile is test_http_server's.
@pytest.mark.parametrize("harm", ["kill", "stop"])
def test_a_server_that_ends_and_is_started_again_costs_no_row_and_repeats_none(
    local: Swept, endpoint: Endpoint, server: VllmServer, tmp_path: Path, harm: str
) -> None:
    served = asyncio.run(sweep_endpoint(endpoint, tmp_path, Killing, getattr(server, harm), server.start))
    assert served.rows.equals(local.rows)
    assert served.result.tokens_generated == local.result.tokens_generated


def test_completions_end_as_those_of_an_engine_of_ours(endpoint: Endpoint) -> None:
    _, markers = load_markers(BASE)

    async def complete(*requests: Generate) -> list[Completion]:
        async with http_pool({"base": endpoint}) as (replica,):
            return [await replica["base"].generate(request, 1) for request in requests]

    start = (markers.think_start,)
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


def test_a_question_in_the_terminal_is_answered_by_a_server(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ELASTIC_API_KEY_MINIATURE", API_KEY)
    answered = elastic("ask", "36+6=?", "--model", server.address, "--budget", "16+24", runs=tmp_path)
    assert answered.returncode == 0, answered.stdout
    assert "tokens: " in answered.stdout and " of 16" in answered.stdout


def test_a_thought_that_the_engine_would_close_is_not_asked_of_a_server(endpoint: Endpoint) -> None:
    async def complete() -> None:
        async with http_pool({"base": endpoint}) as (replica,):
            await replica["base"].generate(Generate((5,), 4, (), SAMPLING, think_budget=2), 1)

    with pytest.raises(RequestFailed, match="use separate"):
        asyncio.run(complete())


def test_a_server_that_wants_a_key_and_gets_none_says_which_variable(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ELASTIC_API_KEY_BASE")
    with pytest.raises(UserError, match=r"refused no key .* set ELASTIC_API_KEY_BASE in the environment"):
        find_endpoints({"base": endpoint.addresses}, {"base": str(BASE)}, endpoint.parameters, tmp_path)
