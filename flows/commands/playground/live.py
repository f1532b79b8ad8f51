"""What a strategy has of its response so far, while tokens are still being drawn.

Strategies side by side ask the same continuation memo, one after the other, so that they share one thought. A strategy
that waits for another's draw will be answered with a part of it: that part is shown while it is being drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elastic_core.engines.memo import ContinuationMemo
from elastic_core.strategies import Completion, Generate
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory


class StreamingEngine(Protocol):
    """An engine whose tokens can be seen as they come, such as `elastic_core.engines.vllm.VllmEngine`."""

    async def generate(
        self, request: Generate, seed: int, on_tokens: Callable[[list[int]], None] | None = None
    ) -> Completion: ...


@dataclass
class Watched:
    """An engine below a memo, with its draw under way: `tokens` so far after `prefix`."""

    engine: StreamingEngine
    prefix: tuple[int, ...] = ()
    tokens: list[int] = field(default_factory=list)

    async def generate(self, request: Generate, seed: int) -> Completion:
        """See `Engine`."""
        self.prefix, self.tokens = request.prefix, []
        return await self.engine.generate(request, seed, self.tokens.extend)


class Follower:
    """The engine of one strategy: asks the memo, and knows the response so far.

    Args:
        think_end: where the solution begins, as far as it can be known before the end.
    """

    def __init__(
        self, memo: ContinuationMemo, drawing: Watched, prompt_ids: tuple[int, ...], think_end: int | None
    ) -> None:
        self._memo, self._drawing, self._prompt, self._think_end = memo, drawing, prompt_ids, think_end
        self._request: Generate | None = None
        self._sequence = prompt_ids
        self._forced: list[bool] = []
        self._dropped: tuple[tuple[int, int], ...] = ()

    async def generate(self, request: Generate, seed: int) -> Completion:
        """See `Engine`."""
        self._note(request)
        completion = await self._memo.generate(request, seed)
        self._forced += [False] * len(completion.tokens)
        self._sequence, self._request = request.prefix + completion.tokens, None
        return completion

    def so_far(self) -> Trajectory:
        """The response as it stands, its finishes not known yet."""
        coming = () if self._request is None else self._coming(self._request)
        ids = (*self._sequence, *coming)[len(self._prompt) :]
        start = ids.index(self._think_end) + 1 if self._think_end in ids else None
        forced = (*self._forced, *(False for _ in coming))
        finishes = ThinkFinish.NOT_APPLICABLE, SolutionFinish.NOT_APPLICABLE
        return Trajectory(self._prompt, ids, forced, start, *finishes, dropped=self._dropped)

    def _note(self, request: Generate) -> None:
        """Whatever the strategy asks to be continued beyond what it was given is its own."""
        same = _common(self._sequence, request.prefix)
        self._dropped += tuple((same - len(self._prompt), token) for token in self._sequence[same:])
        kept = self._forced[: same - len(self._prompt)]
        self._forced = kept + [True] * (len(request.prefix) - same)
        self._sequence, self._request = request.prefix, request

    def _coming(self, request: Generate) -> tuple[int, ...]:
        """What the memo will begin its answer with: what it knows, and what of the draw under way is this request's."""
        known = self._memo.known(request).ids
        if request.prefix + known != self._drawing.prefix:
            return known
        return _cut((*known, *self._drawing.tokens), request)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences begin with together."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _cut(tokens: tuple[int, ...], request: Generate) -> tuple[int, ...]:
    stop = next((i + 1 for i, token in enumerate(tokens) if token in request.stop), len(tokens))
    return tokens[: stop if request.max_tokens is None else min(stop, request.max_tokens)]
