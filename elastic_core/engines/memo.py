"""The continuation memo: what one sample has drawn from a model, so that nothing known is drawn again.

Sampling is autoregressive: what follows a prefix does not depend on the budget that requested it. So the memo answers
a request from any earlier draw that passes through the request's prefix, cut at the request's length and stop ids,
and has only the rest drawn. No strategy notices.

Exact: in one trajectory every prefix is visited once, and its continuation was drawn once from the model given that
prefix, so each trajectory has the distribution of independent sampling. That holds only as long as nothing drawn is
forgotten: a thought that is known up to a forgotten think-end, and drawn on from there, would be too long on average.
Hence `learn` takes the tokens that a strategy dropped too. Cells of one sample are coupled, so their differences are
paired.

Requests are answered side by side. A request waits where another may be drawing its prefix. So nothing is drawn
twice, and rollouts get the same tokens however long each draw takes.

The tokens of a draw depend on where it began, so without a fixed order (`Turn`) rows would differ from run to run. A
rollout may draw from a prefix when no earlier rollout can still draw anything that bears on it: an earlier rollout goes
on only from the prefix of its last request that was not `aside`, so it bears on what begins with that prefix, and on
what that prefix begins with. All else is drawn side by side, and comes out token by token as if the rollouts had run
one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from elastic_core.engines.base import Engine
from elastic_core.strategies.base import Completion, Finish, Generate, Sampling

Prefix = tuple[int, ...]
Cell = TypeVar("Cell")
Result = TypeVar("Result")

Layer = tuple[Sampling, int]  # Draws of one sampling and one number (`Generate.draw`): others know nothing of them.


class Tokens(NamedTuple):
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None


@dataclass
class MemoCounts:
    """Sampled tokens that were drawn by the engine, and that were answered without it."""

    generated: int = 0
    reused: int = 0


class ContinuationMemo:
    """Wraps an engine for one (model, problem, sample).

    The trie of known sequences is kept as its draws: each one is a prefix and what followed it, and begins where no
    other went on. A sequence leaves a draw where a strategy forced another token; there a new draw begins.
    """

    def __init__(self, engine: Engine, counts: MemoCounts | None = None) -> None:
        self.counts = counts or MemoCounts()
        self._engine = engine
        self._draws: dict[Layer, list[tuple[tuple[int, ...], Tokens]]] = {}
        self._order: dict[Turn, None] = {}

    async def generate(self, request: Generate, seed: int) -> Completion:
        """See `Engine`. Each request has a separate turn, in the order in which they come."""
        with Turn(self._order, request.prefix) as turn:
            return await self.answer(request, seed, turn)

    async def answer(self, request: Generate, seed: int, turn: Turn) -> Completion:
        if request.near:  # Nothing is drawn.
            return await self._engine.generate(request, seed)
        if request.budget is not None:  # The engine forces tokens, which are not draws.
            return await self._draw(request, seed)
        if not request.aside:
            turn.reach(request.prefix)
        num_drawn = 0
        while True:
            known = self.known(request)
            finish = _finish(known, request)
            if finish is not None:
                self.counts.reused += len(known.ids) - num_drawn
                return Completion(known.ids, finish, known.logprobs)
            prefix = request.prefix + known.ids
            if await turn.waited(prefix):
                continue
            left = None if request.max_tokens is None else request.max_tokens - len(known.ids)
            limit = self._limit(request, prefix, left)
            rest = await self._draw(replace(request, prefix=prefix, max_tokens=limit, meanwhile=None), seed)
            drawn = Tokens(rest.tokens, rest.logprobs)
            num_drawn += len(drawn.ids)
            if drawn.ids:
                self._draws.setdefault((request.sampling, request.draw), []).append((prefix, drawn))
            context_ended = rest.finish is Finish.LENGTH and len(drawn.ids) != limit
            if limit == left or context_ended:
                self.counts.reused += len(known.ids) + len(drawn.ids) - num_drawn
                return Completion(known.ids + drawn.ids, rest.finish, _joined(known.logprobs, drawn.logprobs))

    def learn(self, prefix: tuple[int, ...], ids: tuple[int, ...], sampling: Sampling) -> None:
        """Enter a sequence drawn earlier after `prefix`, with this sampling, as a resumed run finds it in the table. A
        request for log-probabilities is not answered from it."""
        known = self._follow((sampling, 0), prefix, len(ids))
        assert known.ids == ids[: len(known.ids)], "two sequences after one prefix: only one was drawn"
        if len(known.ids) < len(ids):
            self._draws.setdefault((sampling, 0), []).append((prefix + known.ids, Tokens(ids[len(known.ids) :], None)))

    def known(self, request: Generate) -> Tokens:
        """What follows the prefix, as far as it is known and requested."""
        known = self._follow((request.sampling, request.draw), request.prefix, request.max_tokens)
        stops = [known.ids.index(token) for token in request.stop if token in known.ids]
        return _cut(known, min(stops) + 1) if stops else known

    def _limit(self, request: Generate, prefix: tuple[int, ...], left: int | None) -> int | None:
        """How many tokens to draw at most, where `left` are requested. Past tokens that a strategy forced another draw
        may begin; one that happens to take the same way ends there, or what follows would be drawn twice."""
        starts = [start for start, _ in self._draws.get((request.sampling, request.draw), ())]
        ahead = [len(start) - len(prefix) for start in starts if _begins(start, prefix)]
        return min(ahead if left is None else [*ahead, left], default=None)

    async def _draw(self, request: Generate, seed: int) -> Completion:
        completion = await self._engine.generate(request, seed)
        self.counts.generated += len(completion.tokens)
        return completion

    def _follow(self, layer: Layer, prefix: tuple[int, ...], limit: int | None) -> Tokens:
        """The known continuation of a prefix, of at most `limit` tokens; it may run through several draws."""
        found = Tokens((), () if layer[0].logprobs else None)
        while limit is None or len(found.ids) < limit:
            further = self._continuation(layer, prefix + found.ids)
            if further is None:
                break
            found = Tokens(found.ids + further.ids, _joined(found.logprobs, further.logprobs))
        return found if limit is None else _cut(found, limit)

    def _continuation(self, layer: Layer, prefix: tuple[int, ...]) -> Tokens | None:
        """Tokens after the prefix in the draw that passes through it."""
        for start, drawn in self._draws.get(layer, ()):
            at = len(prefix) - len(start)
            # Prefixes are long: mostly their last token tells that they lie on another draw.
            if not 0 <= at < len(drawn.ids) or (at and prefix[-1] != drawn.ids[at - 1]):
                continue
            if prefix[len(start) :] == drawn.ids[:at] and _begins(prefix, start):
                return Tokens(drawn.ids[at:], None if drawn.logprobs is None else drawn.logprobs[at:])
        return None


@dataclass(frozen=True)
class OfTurn:
    """The memo as one rollout asks it, request by request."""

    memo: ContinuationMemo
    turn: Turn

    async def generate(self, request: Generate, seed: int) -> Completion:
        return await self.memo.answer(request, seed, self.turn)


async def run_in_order(
    cells: Sequence[Cell],
    prompt: Prefix | None,
    attempt: Callable[[Cell, Turn | None], Awaitable[Result | None]],
    finish: Callable[[Cell, Result], Awaitable[None]],
) -> None:
    """Run the cells of one sample as if one came after the other, side by side once their trunk is drawn.

    Args:
        prompt: that they begin with; None of cells that share nothing.
        attempt: draws a cell's trajectory in its turn; None where it failed.
        finish: gets the trajectories in the order of the cells, so a memo rebuilt from them goes on where a run of one
            cell after the other would.
    """
    order: dict[Turn, None] = {}
    ended: dict[int, Result | None] = {}
    num_finished = 0

    def next_turn() -> Turn | None:
        return None if prompt is None else Turn(order, prompt)

    async def run(number: int, turn: Turn | None) -> None:
        nonlocal num_finished
        with turn or nullcontext():
            ended[number] = await attempt(cells[number], turn)
        while num_finished in ended:
            cell, result = cells[num_finished], ended.pop(num_finished)
            num_finished += 1
            if result is not None:
                await finish(cell, result)

    async with asyncio.TaskGroup() as group:
        trunk = next_turn()
        group.create_task(run(0, trunk))
        if trunk is not None:
            await trunk.moved()  # Before that the others could only wait, each as a separate task.
        for number in range(1, len(cells)):
            group.create_task(run(number, next_turn()))


class Turn:
    """One rollout's place in the order, after those of one sample's unfinished rollouts that are in it; a context that
    ends when the rollout draws no more. Everything that it may yet draw begins with `prefix`. A turn with the empty
    prefix keeps it to the end: its requests need not begin with those before."""

    def __init__(self, order: dict[Turn, None], prefix: Prefix) -> None:
        self.prefix = prefix
        self._order = order
        self._waiting: list[asyncio.Future[None]] = []
        order[self] = None

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *error: object) -> None:
        self._order.pop(self, None)
        self._wake()

    def reach(self, prefix: Prefix) -> None:
        if self.prefix and prefix != self.prefix:
            self.prefix = prefix
            self._wake()

    async def waited(self, prefix: Prefix) -> bool:
        """Whether an earlier turn bore on what follows the prefix, and has moved on since. Then ask again: more may be
        known, and another turn may bear on it."""
        for other in self._order:
            if other is self:
                break
            if _on_one_path(other.prefix, prefix):
                await other.moved()
                return True
        return False

    async def moved(self) -> None:
        """Wait until the rollout has moved on, or ended."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting = []


def _on_one_path(a: Prefix, b: Prefix) -> bool:
    """Whether one begins with the other. In most cases the last token that both could share tells that it does not."""
    shared = min(len(a), len(b))
    return shared == 0 or (a[shared - 1] == b[shared - 1] and a[:shared] == b[:shared])


def _finish(known: Tokens, request: Generate) -> Finish | None:
    """How the request ends with the known tokens; None when more has to be drawn."""
    if known.ids and known.ids[-1] in request.stop:
        return Finish.STOP
    return Finish.LENGTH if len(known.ids) == request.max_tokens else None


def _begins(ids: tuple[int, ...], start: tuple[int, ...]) -> bool:
    return start[-1:] == ids[max(0, len(start) - 1) : len(start)] and ids[: len(start)] == start


def _cut(tokens: Tokens, count: int) -> Tokens:
    return Tokens(tokens.ids[:count], None if tokens.logprobs is None else tokens.logprobs[:count])


def _joined(a: tuple[float, ...] | None, b: tuple[float, ...] | None) -> tuple[float, ...] | None:
    return None if a is None or b is None else a + b
