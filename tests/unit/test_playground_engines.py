"""Which models of the page answer at the same time, and who gives way to whom; engines are not started here."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.base import EngineLost
from elastic_core.engines.endpoint import Endpoint, EndpointParameters, Served, parse_address
from elastic_core.engines.parameters import EngineParameters
from elastic_core.errors import UserError
from elastic_core.miniature.grammar import build_tokenizer
from elastic_core.models.special_tokens import resolve_markers
from flows.commands.answer import Loaded
from flows.commands.doctor.machine import GIB
from flows.commands.playground import PlaygroundParameters
from flows.commands.playground.session import Engines, Run, Session, engines_that_fit, memory_needed
from flows.runtime.models import Models, find_models

FAR = Endpoint("far", (parse_address("http://gpu7:8000/v1#m"),), Served("vllm", "1", "", 9), None, EndpointParameters())


@pytest.mark.parametrize(
    ("needed", "available", "number"), [([3, 3], 6, 2), ([3, 4], 7, 1), ([9, 9], 1, 1), ([1, 1, 1], 9, 2)]
)
def test_as_many_engines_as_fit_with_equal_shares_and_always_one(
    needed: list[float], available: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=available))
    monkeypatch.setattr("flows.commands.playground.session.cgroup_memory_limit", lambda: None)
    assert engines_that_fit(needed, EngineParameters()) == number


def test_an_engine_needs_its_weights_its_cache_and_a_process(tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(3 * GIB)
    cpu, gpu = EngineParameters(dtype="bfloat16"), EngineParameters(device="cuda", dtype="bfloat16")
    assert memory_needed(cpu, tmp_path) == (3 + 1 + 2) * GIB
    assert memory_needed(gpu, tmp_path) == (3 + 3 + 2) * GIB, "a cache as large as the weights"
    shared = gpu.model_copy(update={"tensor_parallel_size": 2})
    assert memory_needed(shared, tmp_path) == (1.5 + 1.5 + 2) * GIB
    assert memory_needed(EngineParameters(kv_cache_gib=4), tmp_path) == (6 + 4 + 2) * GIB, "float32 from bfloat16"


class Noted(Engines):
    """Starts nothing, and notes what it would."""

    def __init__(self, models: Models, at_once: int) -> None:
        super().__init__(models)
        self.at_once, self.said = at_once, list[str]()

    async def _load(self, model: str) -> Loaded:
        self.said.append(f"start {model}")
        if model == "broken":
            raise UserError("broken cannot be loaded")
        resources = AsyncExitStack()
        resources.callback(self.said.append, f"end {model}")
        nothing: Any = None
        return Loaded(model, nothing, nothing, nothing, resources)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Models:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    found = find_models("embedded", {})
    places = dict.fromkeys(("base", "trained", "best", "broken", "far"), tmp_path)
    return replace(found, directories=places, endpoints={"far": FAR})


async def run(engines: Noted, names: Sequence[str], together: int = 1) -> None:
    """Use the models as a run does: each until `together` of them are in use."""
    arrived = asyncio.Barrier(together)

    async def answer(model: str) -> None:
        async with engines.using(model):
            async with asyncio.timeout(600):
                await arrived.wait()

    await asyncio.gather(*(answer(model) for model in engines.loaded_first(names)))


def test_two_that_fit_answer_together_and_the_oldest_gives_way_to_a_third(models: Models) -> None:
    engines = Noted(models, at_once=2)
    assert engines.together(["base", "trained", "best", "far"]) == ["base", "trained", "far"]

    async def runs() -> None:
        await run(engines, ["base", "trained", "far"], together=3)
        await run(engines, ["trained", "best"], together=2)

    asyncio.run(runs())
    assert engines.said == ["start base", "start trained", "start far", "end base", "start best"]


def test_where_one_fits_they_take_turns_and_the_one_that_is_there_begins(models: Models) -> None:
    engines = Noted(models, at_once=1)

    async def runs() -> None:
        for _ in range(3):
            await run(engines, ["base", "trained"])

    asyncio.run(runs())
    starts = [each for each in engines.said if each.startswith("start")]
    assert starts == ["start base", "start trained", "start base", "start trained"], "one change of engines a run"


def test_nobody_ends_an_engine_that_is_in_use(models: Models) -> None:
    engines = Noted(models, at_once=1)

    async def two_visitors() -> None:
        async with engines.using("base"):
            other = asyncio.create_task(run(engines, ["trained"]))
            await asyncio.sleep(0.01)
            assert engines.said == ["start base"]
        await other

    asyncio.run(two_visitors())
    assert engines.said == ["start base", "end base", "start trained"]


def test_visitors_who_want_each_others_engines_do_not_wait_for_ever(models: Models) -> None:
    engines = Noted(models, at_once=2)

    async def visitors() -> None:
        pairs = [["base", "trained"], ["trained", "best"], ["best", "base"]] * 4
        async with asyncio.timeout(600):
            await asyncio.gather(*(run(engines, pair) for pair in pairs))

    asyncio.run(visitors())


def test_one_that_was_lost_is_started_anew(models: Models) -> None:
    engines = Noted(models, at_once=2)

    async def lost() -> None:
        async with engines.using("base") as loaded:
            await engines.drop(loaded)
        await run(engines, ["base"])

    asyncio.run(lost())
    assert engines.said == ["start base", "end base", "start base"]


def test_a_model_that_cannot_be_loaded_leaves_the_others_and_says_so_to_who_needs_it(models: Models) -> None:
    engines = Noted(models, at_once=2)
    asyncio.run(engines.preload(["broken", "base", "trained"]))
    assert engines.said == ["start broken", "start base"], "the two that the page begins with"
    with pytest.raises(UserError, match="broken cannot be loaded"):
        asyncio.run(run(engines, ["broken"]))


class Dying:
    """An engine that is lost with its first request."""

    max_model_len = 1024

    async def generate(self, *_: object) -> Any:
        raise EngineLost("the engine died")


def test_a_lost_engine_fails_its_models_answers_and_is_ended(models: Models) -> None:
    tokenizer = build_tokenizer()

    class Lost(Noted):
        async def _load(self, model: str) -> Loaded:
            found = await super()._load(model)
            engine: Any = Dying()
            return replace(found, engine=engine, tokenizer=tokenizer, markers=resolve_markers(tokenizer))

    session = Session(models, PlaygroundParameters())
    session.engines = engines = Lost(models, at_once=2)
    run = Run(("base", "trained"), Problem("b", "1", "12+3=?", "15", "math"), ("separate", "vanilla"), Budget(4, 4), 0)
    asyncio.run(session.perform(run))
    assert {(each.state, each.sentence) for each in run.attempts} == {
        ("failed", "the engine died; run again to start it anew")
    }
    assert sorted(engines.said) == ["end base", "end trained", "start base", "start trained"]
    with pytest.raises(UserError, match="the engine died"):
        asyncio.run(session.perform(replace(run, models=("base",))))
