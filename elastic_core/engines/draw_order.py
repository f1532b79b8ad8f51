"""In which order the rollouts of one sample draw, when they run side by side and share what they draw.

What a draw holds depends on where it began, so without a fixed order rows would differ from run to run. A rollout may
draw from a prefix when no earlier rollout can still draw anything that bears on it: an earlier rollout goes on only
from the prefix of its last request, so it bears on what begins with that prefix, and on what that prefix begins with.
All else is drawn side by side, and comes out token by token as if the rollouts had run one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import TypeVar

Prefix = tuple[int, ...]
Cell = TypeVar("Cell")
Result = TypeVar("Result")


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
    order = DrawOrder()
    ended: dict[int, Result | None] = {}
    num_finished = 0

    def next_turn() -> Turn | None:
        return None if prompt is None else order.add(prompt)

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
            await trunk.moved()  # Before that the others could only wait, each as a task of its own.
        for number in range(1, len(cells)):
            group.create_task(run(number, next_turn()))


class DrawOrder:
    """The turns of one sample's unfinished rollouts, the earliest first."""

    def __init__(self) -> None:
        self._open: dict[Turn, None] = {}

    def add(self, prefix: Prefix) -> Turn:
        """A turn after all others; a context that ends when the rollout draws no more. A turn with the empty prefix
        keeps it to the end: its requests need not begin with those before."""
        turn = Turn(self, prefix)
        self._open[turn] = None
        return turn

    def before(self, turn: Turn, prefix: Prefix) -> Turn | None:
        """The first earlier turn that bears on what follows the prefix, if there is one."""
        for other in self._open:
            if other is turn:
                return None
            if _on_one_path(other.prefix, prefix):
                return other
        return None


class Turn:
    """One rollout's place in the order. Everything that it may yet draw begins with `prefix`."""

    def __init__(self, order: DrawOrder, prefix: Prefix) -> None:
        self.prefix = prefix
        self._order = order
        self._waiting: list[asyncio.Future[None]] = []

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *error: object) -> None:
        self._order._open.pop(self, None)
        self._wake()

    def reach(self, prefix: Prefix) -> None:
        """The rollout goes on from here."""
        if self.prefix and prefix != self.prefix:
            self.prefix = prefix
            self._wake()

    async def waited(self, prefix: Prefix) -> bool:
        """Whether an earlier turn bore on what follows the prefix, and has moved on since. Then ask again: more may be
        known, and another turn may bear on it."""
        other = self._order.before(self, prefix)
        if other is not None:
            await other.moved()
        return other is not None

    async def moved(self) -> None:
        """Until the rollout has come further, or to its end."""
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
