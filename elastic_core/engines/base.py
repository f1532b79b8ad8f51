"""Who answers a strategy's requests, and the driver between the two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from elastic_core.strategies.base import Completion, Generate, StrategyRun
from elastic_core.system.retry import ProcessLost
from elastic_core.trajectory import BudgetExceeded, Trajectory


class RequestFailed(RuntimeError):
    """An engine could not answer this request; others may still succeed."""


class EngineLost(ProcessLost):
    """The engine is gone, or never came, and nothing more can be asked of it."""


class Engine(Protocol):
    """Anything that samples from a model."""

    async def generate(self, request: Generate, seed: int) -> Completion:
        """Sampled tokens after `request.prefix`: at most max_tokens, ending with the first stop id.

        Args:
            seed: of the sample; whoever draws derives the request's own, `request_seed`.

        Raises:
            RequestFailed: when this request could not be answered.
            EngineLost: when no request can be any more.
        """
        ...


@dataclass(frozen=True)
class Limited:
    """An engine that ends after `max_tokens` what no budget ends: an unlimited phase does not go on to the context's
    end, which is another for every prompt."""

    engine: Engine
    max_tokens: int

    async def generate(self, request: Generate, seed: int) -> Completion:
        """See `Engine`."""
        if request.max_tokens is None:
            request = replace(request, max_tokens=self.max_tokens)
        return await self.engine.generate(request, seed)


async def drive(rollout: StrategyRun, engines: Mapping[str, Engine], seed: int) -> Trajectory:
    """Run one rollout to its end.

    Args:
        engines: by role; "policy" answers for every role that is not named.
        seed: of this sample.

    Raises:
        BudgetExceeded: when an engine returned more tokens than it was asked for.
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
