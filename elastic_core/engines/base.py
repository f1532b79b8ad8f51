"""The engine protocol, and the driver that runs a strategy over engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from elastic_core.strategies.base import Completion, Finish, Generate, StrategyRun
from elastic_core.system.retry import ProcessLost
from elastic_core.trajectory import BudgetExceeded, Trajectory

OnTokens = Callable[[list[int]], None]  # Gets the tokens of a completion as they come.


class RequestFailed(RuntimeError):
    """An engine could not answer this request; others may still succeed."""


class EngineLost(ProcessLost):
    """The engine is gone, or never started: no further request can succeed."""


class Engine(Protocol):
    """Anything that samples from a model."""

    async def generate(self, request: Generate, seed: int) -> Completion:
        """Sampled tokens after `request.prefix`: at most max_tokens, ending with the first stop id. The engine derives
        the request's seed from the sample's `seed` (`request_seed`). Raises RequestFailed or EngineLost."""
        ...


@dataclass(frozen=True)
class Limited:
    """Gives `max_tokens` to requests without a limit. Without it they would end at the context's end, after a number of
    tokens that differs with the prompt."""

    engine: Engine
    max_tokens: int

    async def generate(self, request: Generate, seed: int) -> Completion:
        if request.max_tokens is None:
            request = replace(request, max_tokens=self.max_tokens)
        return await self.engine.generate(request, seed)


def closed_at(request: Generate, ranks: Sequence[Mapping[int, int] | None]) -> Completion:
    """The completion of a request for a place `near` which a thought may be closed, from the rank of each of the most
    probable tokens at every place of the prefix (`Generate.near`)."""
    most, places = request.max_tokens or 0, list(ranks)
    assert len(places) == len(request.prefix), "one place for each token"
    window = places[len(places) - most :]
    token = request.stop[0]
    found = (at for at, rank in enumerate(window) if (rank or {}).get(token, request.near + 1) <= request.near)
    at = next(found, None)
    kept = request.prefix[len(places) - most :][:at]
    none = (0.0,) * len(kept) if request.sampling.logprobs else None
    return Completion(kept, Finish.LENGTH if at is None else Finish.STOP, none)


def room_for(request: Generate, context: int) -> int:
    """Most tokens that a completion may have in a context of so many."""
    room = max(0, context - len(request.prefix))
    return room if request.max_tokens is None else min(room, request.max_tokens)


def empty_completion(request: Generate) -> Completion:
    """The completion of a request that has no room."""
    return Completion((), Finish.LENGTH, () if request.sampling.logprobs else None)


async def drive(rollout: StrategyRun, engines: Mapping[str, Engine], seed: int) -> Trajectory:
    """Run one rollout to its end, with the sample's seed.

    Args:
        engines: by role; "policy" answers for every role that is not named.

    Raises:
        BudgetExceeded: when an engine returned more tokens than requested.
    """
    request = next(rollout)
    while True:
        engine = engines.get(request.role) or engines["policy"]
        completion = await engine.generate(request, seed)
        if request.max_tokens is not None and len(completion.tokens) > request.max_tokens:
            raise BudgetExceeded(f"the engine returned {len(completion.tokens)} tokens for {request.max_tokens} asked")
        try:
            request = rollout.send(completion)
        except StopIteration as stop:
            return stop.value
