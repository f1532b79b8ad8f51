"""Which replica takes the next sample, and when: each engine gets as many requests as it may have, and few more samples
than that takes.

A sample has one request at first, and many once its trunk is drawn. So a full batch comes from few samples, which end
soon, and an engine with free room gets further samples.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elastic_core.engines.base import Engine
from elastic_core.strategies import Completion, Generate

Replica = Mapping[str, Engine]
"""Engines by name of the checkpoint they run."""


@dataclass
class _Load:
    replica: Replica
    requests: asyncio.Semaphore
    load: int = 0
    """Requests that run or wait, and samples that have none at the moment."""


class Scheduler:
    """Keeps at most `max_in_flight` requests at once on each replica."""

    def __init__(self, replicas: Sequence[Replica], max_in_flight: int) -> None:
        self._loads = [_Load(replica, asyncio.Semaphore(max_in_flight)) for replica in replicas]
        self._max_in_flight = max_in_flight
        self._eased = asyncio.Event()

    async def slot(self) -> SampleSlot:
        """For the next sample, on the least loaded replica; waits until one has room."""
        while True:
            least = min(self._loads, key=lambda each: each.load)
            if least.load < self._max_in_flight:
                least.load += 1
                return SampleSlot(least, self._eased)
            self._eased.clear()
            await self._eased.wait()


@dataclass
class SampleSlot:
    """One sample's part of a replica; a context that ends with the sample."""

    _load: _Load
    _eased: asyncio.Event
    _num_requests: int = field(default=0, init=False)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._ease()

    def engine(self, name: str) -> Engine:
        """The replica's engine of a checkpoint, within its limit of requests."""
        return _Limited(self, self._load.replica[name])

    async def generate(self, engine: Engine, request: Generate, seed: int) -> Completion:
        self._num_requests += 1
        self._load.load += self._num_requests > 1
        try:
            async with self._load.requests:
                return await engine.generate(request, seed)
        finally:
            self._num_requests -= 1
            if self._num_requests:
                self._ease()

    def _ease(self) -> None:
        self._load.load -= 1
        self._eased.set()


@dataclass(frozen=True)
class _Limited:
    slot: SampleSlot
    engine: Engine

    async def generate(self, request: Generate, seed: int) -> Completion:
        return await self.slot.generate(self.engine, request, seed)
