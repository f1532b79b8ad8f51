"""The engine protocol, the driver that runs a strategy over engines, and how an engine's latency is measured."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from elastic_core.strategies.base import Completion, Generate, Sampling, StrategyRun
from elastic_core.system.retry import ProcessLost
from elastic_core.trajectory import BudgetExceeded, Trajectory

LATENCY_ROUNDS = 3
LONG, DECODED = 1024, 64
"""Tokens of `measure_latency`'s long prompt, and of its long completion, at most."""


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


class Latency(NamedTuple):
    """Seconds of one more turn, of an input token and of an output token."""

    turn: float
    input: float
    output: float


async def measure_latency(engine: Engine, prompts: Sequence[Sequence[int]], context: int | None) -> Latency:
    """What a user waits for when the engine has no other request: a least-squares fit, without negative times, of the
    seconds of single requests (short prompt and one token, long prompt and one token, short prompt and many tokens).
    Raises as `Engine.generate`.

    Args:
        prompts: of the sweep. Requests are made of their tokens, reversed, so that the prefix cache has none of them.
        context: of the model, in tokens.
    """
    from scipy.optimize import nnls

    room = LONG if context is None else min(LONG, context // 2)
    work, seconds = [], []
    for i in range(LATENCY_ROUNDS):
        short = tuple(reversed(prompts[i % len(prompts)]))[:room]
        others = [token for place in range(len(prompts)) for token in reversed(prompts[(place - i - 1) % len(prompts)])]
        long = tuple((others * (1 + room // len(others)))[:room])
        for prefix, max_tokens in ((short, 1), (long, 1), (short[1:] + short[:1], min(DECODED, room))):
            began = time.perf_counter()
            completion = await engine.generate(Generate(prefix, max_tokens, (), Sampling()), seed=i)
            seconds.append(time.perf_counter() - began)
            work.append((1, len(prefix), len(completion.tokens)))
    found, _ = nnls(work, seconds)
    return Latency(*map(float, found))
