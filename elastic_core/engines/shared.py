"""One draw, many budgets: an engine that answers a request from a longer one of the same draw.

A request's seed is a function of its sample and its prefix (`elastic_core.engines.base.request_seed`), so two requests
with the same prefix, seed and sampling are the same draw, cut at different lengths or stop ids; what follows a prefix
does not depend on the budget that asked for it. Every cell therefore keeps the law of independent sampling, and on an
engine whose seeded draws are reproducible even its tokens. Not covered: a prefix that lies inside another draw.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from elastic_core.engines.base import Engine
from elastic_core.strategies.base import Completion, Finish, Generate, Sampling

_Draw = tuple[tuple[int, ...], int, Sampling, str]


@dataclass(frozen=True)
class _Asked:
    request: Generate
    completion: asyncio.Task[Completion]

    def covers(self, request: Generate) -> bool:
        """Whether the completion, there or still to come, is sure to hold what `request` asks for."""
        mine, theirs = request.max_tokens, self.request.max_tokens
        if theirs is not None and (mine is None or mine > theirs):
            return False
        if not self.completion.done():
            return set(self.request.stop) <= set(request.stop)
        failed = self.completion.cancelled() or self.completion.exception() is not None
        return not failed and _cut(self.completion.result(), request) is not None


class SharedDraws:
    """Wraps an engine; `generated` and `reused` count tokens."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._asked: dict[_Draw, _Asked] = {}
        self.generated = 0
        self.reused = 0

    async def generate(self, request: Generate, seed: int) -> Completion:
        """See `Engine`."""
        draw = (request.prefix, seed, request.sampling, request.role)
        known = self._asked.get(draw)
        if known is not None and known.covers(request):
            # Shielded: whoever asked first may be cancelled, and others wait for the same completion.
            cut = _cut(await asyncio.shield(known.completion), request)
            assert cut is not None, "a covering completion holds every shorter one"
            self.reused += len(cut.tokens)
            return cut
        asked = _Asked(request, asyncio.create_task(self._engine.generate(request, seed)))
        self._asked[draw] = asked
        completion = await asyncio.shield(asked.completion)
        self.generated += len(completion.tokens)
        return completion


def _cut(completion: Completion, request: Generate) -> Completion | None:
    """What a request that is no longer than the completion's own would have got of this draw; None when the draw ended
    at a stop id that is none of the request's."""
    tokens = completion.tokens[: request.max_tokens]
    for i, token in enumerate(tokens):
        if token in request.stop:
            return _first(completion, i + 1, Finish.STOP)
    # A draw that ended by length before the request's limit has reached the context's end.
    if len(tokens) == request.max_tokens or completion.finish is Finish.LENGTH:
        return _first(completion, len(tokens), Finish.LENGTH)
    return None


def _first(completion: Completion, count: int, finish: Finish) -> Completion:
    logprobs = None if completion.logprobs is None else completion.logprobs[:count]
    return Completion(completion.tokens[:count], finish, logprobs)
