"""Speed of an engine: a fit of single requests, and the seconds of a step by the number of concurrent requests."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from elastic_core.engines.base import Engine
from elastic_core.strategies.base import Generate, Sampling

LATENCY_ROUNDS = 3
LONG, DECODED = 1024, 64  # Tokens of `measure_latency`'s long prompt, and of its long completion, at most.
_MOST, _SHORT, _LONG, _ROUNDS = 128, 4, 32, 2
"""Of `measure_steps`: requests that are open, their tokens, and how often each is followed."""
_SECONDS = 15.0
"""After so long it tries no larger number of requests: a slow engine's sweep has better to do."""


class Latency(NamedTuple):
    """Seconds of one more turn, of an input token and of an output token."""

    turn: float
    input: float
    output: float


async def measure_latency(engine: Engine, prompts: Sequence[Sequence[int]], context: int | None) -> Latency:
    """A user's wait when the engine has no other request: a least-squares fit, without negative times, of the
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


class Steps(NamedTuple):
    """Seconds from a token to the next of one response, by the number of concurrent responses. Between two counts
    they are interpolated, beyond the last they go on as straight as before it.

    Attributes:
        running: counts, ascending, shape (counts,).
        seconds: shape (counts,), above 0, none less than the one before: more work takes no less time.
        request: seconds by which a request that begins holds up all others, its prompt's tokens apart.
    """

    running: tuple[int, ...]
    seconds: tuple[float, ...]
    request: float = 0.0

    def at(self, running: float) -> float:
        """Seconds of a step with so many."""
        place, last = bisect(self.running, running) - 1, len(self.running) - 1
        if place < 0 or not last:
            return self.seconds[0]
        low = min(place, last - 1)
        slope = (self.seconds[low + 1] - self.seconds[low]) / (self.running[low + 1] - self.running[low])
        return slope * (running - self.running[place]) + self.seconds[place]

    def running_at(self, seconds: float) -> float:
        """Most that may run so that a step takes at most so long; below 1 where even one takes longer."""
        if seconds < self.seconds[0]:
            return seconds / self.seconds[0]
        if seconds >= self.seconds[-1]:
            slope = (self.at(2 * self.running[-1]) - self.seconds[-1]) / self.running[-1]
            return self.running[-1] + ((seconds - self.seconds[-1]) / slope if slope > 0 else float("inf"))
        # Of counts that take the same time the last: interp wants the seconds ascending.
        pairs = list(zip(self.running, self.seconds, strict=True))
        (low, fast), (high, slow) = next(each for each in pairwise(pairs) if each[1][1] > seconds)
        return low + (high - low) * (seconds - fast) / (slow - fast)


async def measure_steps(engine: Engine, prompts: Sequence[Sequence[int]], context: int | None, most: int) -> Steps:
    """`Steps` of an engine without other load: with 1, 4, 16, ... requests open all the time, up to `most` or 128, how
    long short ones and long ones take; an open one is followed by the next, and they end at different times, as under a
    real load. A slow engine gets fewer concurrent requests. Raises as `Engine.generate`.

    Args:
        prompts: of the sweep, or of any tokens.
        context: of the model, in tokens.
    """
    most = min(most, _MOST)
    counts = sorted({4**power for power in range(1 + most.bit_length() // 2) if 4**power < most} | {most})
    long = _LONG if context is None else max(_SHORT + 1, min(_LONG, context - max(map(len, prompts)) - 1))

    async def seconds_of(count: int, max_tokens: int) -> float:
        """Seconds of a request, with `count` of them open."""
        ended: list[list[float]] = [[] for _ in range(count)]

        async def worker(place: int) -> None:
            draws = 0
            while min(map(len, ended)) <= _ROUNDS:
                prompt = prompts[(place + draws) % len(prompts)]
                limit = max_tokens if draws else 1 + place % max_tokens  # So that not all end together.
                await engine.generate(Generate((*prompt,), limit, (), Sampling()), place)
                ended[place].append(time.perf_counter())
                draws += 1

        await asyncio.gather(*map(worker, range(count)))
        return float(np.mean([(each[_ROUNDS] - each[0]) / _ROUNDS for each in ended]))

    steps, requests, began = list[float](), list[float](), time.perf_counter()
    for count in counts:
        if steps and time.perf_counter() - began > _SECONDS:
            break
        few, many = await seconds_of(count, _SHORT), await seconds_of(count, long)
        # Where noise hides the difference: a step takes at most so long, and never nothing.
        step = (many - few) / (long - _SHORT) if many > few else many / long
        steps.append(step)
        # All others are held up while one begins.
        requests.append(max(0.0, few - _SHORT * step) / count)
    seconds = tuple(map(float, np.maximum.accumulate(steps)))
    return Steps(tuple(counts[: len(steps)]), seconds, float(np.median(requests)))
