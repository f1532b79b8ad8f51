"""The latency of an engine, from how long it takes for requests of known work."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.engines import latency
from elastic_core.engines.latency import Steps, measure_latency, measure_steps
from elastic_core.strategies.base import Completion, Finish, Generate
from tests.simulated import run


class Timed:
    """An engine whose requests take a fixed time for a turn, an input and an output token. The clock is its own."""

    def __init__(self, turn: float, read: float, written: float, ends_after: int = 1000) -> None:
        self.now, self.asked = 0.0, list[Generate]()
        self._costs, self._ends_after = (turn, read, written), ends_after

    async def generate(self, request: Generate, seed: int) -> Completion:
        assert request.max_tokens is not None
        count = min(request.max_tokens, self._ends_after)
        turn, read, written = self._costs
        self.now += turn + read * len(request.prefix) + written * count
        self.asked.append(request)
        return Completion((7,) * count, Finish.LENGTH)


@pytest.mark.parametrize("ends_after", [1000, 5])
def test_each_kind_of_work_is_told_from_the_others(monkeypatch: pytest.MonkeyPatch, ends_after: int) -> None:
    engine = Timed(0.05, 0.0002, 0.03, ends_after)
    monkeypatch.setattr(latency.time, "perf_counter", lambda: engine.now)
    prompts = [list(range(i, i + 12 + i)) for i in range(8)]
    found = asyncio.run(measure_latency(engine, prompts, 512))
    assert found == pytest.approx((0.05, 0.0002, 0.03), rel=1e-6)
    assert max(len(request.prefix) for request in engine.asked) == 256
    assert len({request.prefix for request in engine.asked}) == len(engine.asked), "no prefix is in a cache"


def test_no_time_is_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Timed(0.0, 0.0, 0.0)
    ticks = iter(range(1000, 0, -1))
    monkeypatch.setattr(latency.time, "perf_counter", lambda: 1 / next(ticks))
    assert min(asyncio.run(measure_latency(engine, [[1, 2, 3]], None))) >= 0


@dataclass
class Batched:
    """Draws a token of every open request in a step that takes longer with more of them; one that begins waits for the
    others to begin, as they do for it."""

    begin: float = 0.0
    num_open: int = 0

    async def generate(self, request: Generate, seed: int) -> Completion:
        assert request.max_tokens is not None
        self.num_open += 1
        await asyncio.sleep(self.begin * self.num_open)
        for _ in range(request.max_tokens):
            await asyncio.sleep(0.002 + 0.001 * self.num_open)
        self.num_open -= 1
        return Completion((7,) * request.max_tokens, Finish.LENGTH)


@pytest.mark.parametrize("begin", [0.0, 0.004])
def test_steps_are_told_from_what_a_request_takes_beside_them(monkeypatch: pytest.MonkeyPatch, begin: float) -> None:
    async def measured() -> Steps:
        monkeypatch.setattr(latency.time, "perf_counter", asyncio.get_running_loop().time)
        return await measure_steps(Batched(begin), [[1, 2, 3], [4, 5]], 512, 20)

    steps = run(measured())
    assert steps.running == (1, 4, 16, 20)
    assert steps.seconds == pytest.approx([0.003, 0.006, 0.018, 0.022], rel=0.05)
    assert steps.request == pytest.approx(begin, abs=2e-4)


def test_a_step_takes_some_time_where_noise_hides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first requests of a busy machine were slower than longer ones after them: a step took 0 s, by which the load
    was divided."""

    class Warming(Batched):
        async def generate(self, request: Generate, seed: int) -> Completion:
            await asyncio.sleep(1.0 if request.max_tokens == 4 else 0.0)
            return await super().generate(request, seed)

    async def measured() -> Steps:
        monkeypatch.setattr(latency.time, "perf_counter", asyncio.get_running_loop().time)
        return await measure_steps(Warming(0.0), [[1, 2, 3]], 512, 4)

    alone, four = run(measured()).seconds
    assert (alone, 0 < four <= 0.006) == (pytest.approx(0.003, rel=0.05), True)


def test_a_slow_engine_is_not_asked_for_more_at_once_than_its_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "_SECONDS", 1.0)

    async def measured() -> Steps:
        monkeypatch.setattr(latency.time, "perf_counter", asyncio.get_running_loop().time)
        return await measure_steps(Batched(0.0), [[1, 2, 3], [4, 5]], 512, 128)

    assert run(measured()).running == (1, 4, 16)


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=5), st.floats(1, 300))
def test_what_may_run_at_a_speed_is_what_takes_so_long(seconds: list[float], running: float) -> None:
    steps = Steps(tuple(4**i for i in range(len(seconds))), tuple(sorted(seconds)))
    found = steps.running_at(steps.at(running))
    assert found >= running * (1 - 1e-6)
    if found < float("inf"):
        assert steps.at(found) == pytest.approx(steps.at(running))
    assert steps.running_at(0.5 * steps.at(1)) < 1
