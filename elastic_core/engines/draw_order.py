"""Whose turn it is to draw, where several rollouts of one sample run side by side.

What a draw holds depends on where it began, so rollouts that share what they draw must share it in one order, or rows
would differ from run to run. The order is that of the turns. A rollout may draw from a prefix while no earlier one can
still draw anything that bears on it: an earlier one only ever goes on from the prefix of its last request, so it bears
on what begins with that prefix, and on what that prefix begins with. Everything else is drawn side by side, and comes
out token by token as if the rollouts had run one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import TypeVar

Prefix = tuple[int, ...]
Cell = TypeVar("Cell")
Result = TypeVar("Result")


async def run_in_turns(
    cells: Sequence[Cell],
    prompt: Prefix | None,
    attempt: Callable[[Cell, Turn | None], Awaitable[Result | None]],
    finish: Callable[[Cell, Result], Awaitable[None]],
) -> None:
    """Run cells as if one came after the other, side by side once their trunk is drawn, and finish them in this order.

    Args:
        cells: of one sample.
        prompt: that they begin with; None of cells that share nothing, and need no turns.
        attempt: draws a cell's trajectory in its turn; None where it failed.
        finish: takes a trajectory. What it took at any moment are the first ones, so whoever rebuilds the memo from
            them goes on where a run of one cell after the other would.
    """
    turns = Turns()
    ended: dict[int, Result | None] = {}
    num_finished = 0

    def next_turn() -> Turn | None:
        return None if prompt is None else turns.add(prompt)

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


class Turns:
    """The rollouts of one sample that are not at their end, in their order."""

    def __init__(self) -> None:
        self._open: dict[Turn, None] = {}

    def add(self, prefix: Prefix) -> Turn:
        """A turn after all others, to be used as a context: at its end the rollout draws no more.

        Args:
            prefix: what its first request begins with. The empty one is kept to the end: it is for rollouts whose
                requests need not begin with those before.
        """
        turn = Turn(self, prefix)
        self._open[turn] = None
        return turn

    def before(self, turn: Turn, prefix: Prefix) -> Turn | None:
        """An earlier turn that bears on what follows the prefix, if there is one."""
        for other in self._open:
            if other is turn:
                return None
            if _on_one_path(other.prefix, prefix):
                return other
        return None

    def close(self, turn: Turn) -> None:
        self._open.pop(turn, None)


class Turn:
    """Of one rollout.

    Attributes:
        prefix: everything that it may yet draw begins with it.
    """

    def __init__(self, turns: Turns, prefix: Prefix) -> None:
        self.prefix = prefix
        self._turns = turns
        self._waiting: list[asyncio.Future[None]] = []

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turns.close(self)
        self._wake()

    def reach(self, prefix: Prefix) -> None:
        """The rollout goes on from here."""
        if self.prefix and prefix != self.prefix:
            self.prefix = prefix
            self._wake()

    async def waited(self, prefix: Prefix) -> bool:
        """Whether an earlier turn bore on what follows the prefix. If so, it has moved on meanwhile: what is known may
        be more, and another one may bear on it."""
        other = self._turns.before(self, prefix)
        if other is not None:
            await other.moved()
        return other is not None

    async def moved(self) -> None:
        """Until the rollout has come further, or to its end."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def _on_one_path(a: Prefix, b: Prefix) -> bool:
    """Whether one begins with the other. Mostly the last token that both could share tells that it does not."""
    shared = min(len(a), len(b))
    return shared == 0 or (a[shared - 1] == b[shared - 1] and a[:shared] == b[:shared])
