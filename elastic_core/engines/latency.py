"""How long an engine takes for the work of a response, asked one request at a time: what a user waits for who is alone,
and no measure of what an engine does for many at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from elastic_core.engines.base import Engine
from elastic_core.strategies.base import Generate, Sampling

ROUNDS = 3
LONG, DECODED = 1024, 64
"""Tokens of a long prompt, and tokens asked for, at most."""


class Latency(NamedTuple):
    """Seconds of one more turn, of an input token and of an output token."""

    turn: float
    input: float
    output: float


async def measure_latency(engine: Engine, prompts: Sequence[Sequence[int]], context: int | None) -> Latency:
    """From requests of a short prompt and one token, a long prompt and one token, and a short prompt and many tokens,
    by least squares without negative times.

    Args:
        prompts: of the sweep, whose tokens the requests are made of. They are read backwards, so that no cache of
            prefixes has them.
        context: of the model, in tokens.

    Raises:
        RequestFailed, EngineLost: as `Engine.generate`.
    """
    # Engines and flows start without it.
    from scipy.optimize import nnls

    room = LONG if context is None else min(LONG, context // 2)
    work, seconds = [], []
    for i in range(ROUNDS):
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
