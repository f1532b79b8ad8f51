"""Who answers a strategy's requests, and the driver between the two."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping
from typing import Protocol

from elastic_core.strategies.base import Completion, Generate, StrategyRun
from elastic_core.trajectory import BudgetExceeded, Trajectory
from elastic_core.transient import ProcessLost


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


def request_seed(seed: int, request: Generate) -> int:
    """The seed of one request, a function of the sample's seed, the prefix and the draw's number alone, so that a
    resumed run draws what an uninterrupted one would have. Non-negative, below 2**31."""
    digest = hashlib.blake2b(digest_size=8, person=request.draw.to_bytes(8, "little"))
    digest.update(seed.to_bytes(8, "little", signed=True))
    digest.update(array("I", request.prefix).tobytes())
    return int.from_bytes(digest.digest(), "little") & 0x7FFFFFFF


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
