"""Which replica takes the next sample, and when: each engine has as many requests as it is allowed, and hardly more
samples than that takes.

A sample begun has at least one request; once its trunk is drawn it has many. So a full batch is made of few samples,
each at its end soon, and an engine that would stand idle gets more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elastic_core.engines.base import Engine
from elastic_core.strategies import Completion, Generate

Replica = Mapping[str, Engine]
"""Engines by name of the checkpoint they run."""


class Lanes:
    """All replicas of a model.

    Args:
        max_in_flight: requests at once per replica.
    """

    def __init__(self, replicas: Sequence[Replica], max_in_flight: int) -> None:
        self._lanes = [_Lane(replica, asyncio.Semaphore(max_in_flight)) for replica in replicas]
        self._max_in_flight = max_in_flight
        self._eased = asyncio.Event()

    async def place(self) -> Place:
        """For the next sample, on the replica that has the least to do; waits until it has too little."""
        while True:
            lane = min(self._lanes, key=lambda lane: lane.load)
            if lane.load < self._max_in_flight:
                lane.load += 1
                return Place(lane, self._eased)
            self._eased.clear()
            await self._eased.wait()


@dataclass
class _Lane:
    """Attributes:
    load: requests that are open or wait for their place, and samples that have none at the moment.
    """

    replica: Replica
    slots: asyncio.Semaphore
    load: int = 0


@dataclass
class Place:
    """Of one sample; a context that ends with it."""

    lane: _Lane
    eased: asyncio.Event
    num_requests: int = field(default=0, init=False)

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *error: object) -> None:
        self._ease()

    def engine(self, name: str) -> Engine:
        """The replica's engine of a checkpoint, which is asked no more at once than it is allowed."""
        return _Slotted(self, self.lane.replica[name])

    async def generate(self, engine: Engine, request: Generate, seed: int) -> Completion:
        self.num_requests += 1
        self.lane.load += self.num_requests > 1
        try:
            async with self.lane.slots:
                return await engine.generate(request, seed)
        finally:
            self.num_requests -= 1
            if self.num_requests:
                self._ease()

    def _ease(self) -> None:
        self.lane.load -= 1
        self.eased.set()


@dataclass(frozen=True)
class _Slotted:
    place: Place
    engine: Engine

    async def generate(self, request: Generate, seed: int) -> Completion:
        return await self.place.generate(self.engine, request, seed)
