"""The latency of an engine, from how long it takes for requests of known work."""

import asyncio

import pytest

from elastic_core.engines import base
from elastic_core.engines.base import measure_latency
from elastic_core.strategies.base import Completion, Finish, Generate


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
    monkeypatch.setattr(base.time, "perf_counter", lambda: engine.now)
    prompts = [list(range(i, i + 12 + i)) for i in range(8)]
    found = asyncio.run(measure_latency(engine, prompts, 512))
    assert found == pytest.approx((0.05, 0.0002, 0.03), rel=1e-6)
    assert max(len(request.prefix) for request in engine.asked) == 256
    assert len({request.prefix for request in engine.asked}) == len(engine.asked), "no prefix is in a cache"


def test_no_time_is_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Timed(0.0, 0.0, 0.0)
    ticks = iter(range(1000, 0, -1))
    monkeypatch.setattr(base.time, "perf_counter", lambda: 1 / next(ticks))
    assert min(asyncio.run(measure_latency(engine, [[1, 2, 3]], None))) >= 0
