"""Cells of one sample that begin with one prompt: side by side once their trunk is drawn, their rows in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

from elastic_core.engines.turns import Turn, Turns
from elastic_core.sweep.grid import Cell
from elastic_core.trajectory import Trajectory


class Chain(NamedTuple):
    """Attributes:
    prompt: that they have in common; None of a cell that shares nothing, and needs no turn.
    """

    cells: Sequence[Cell]
    prompt: tuple[int, ...] | None = None


async def run_chain(
    chain: Chain,
    attempt: Callable[[Cell, Turn | None], Awaitable[Trajectory | None]],
    finish: Callable[[Cell, Trajectory], Awaitable[None]],
) -> None:
    """Run cells as if one came after the other, and finish them in this order.

    Args:
        attempt: draws a cell's trajectory in its turn; None where it failed.
        finish: takes a trajectory. What it took at any moment are the first ones, so whoever rebuilds the memo from
            them goes on where a run of one cell after the other would.
    """
    turns = Turns()
    ended: dict[int, Trajectory | None] = {}
    num_finished = 0

    def turn_of(number: int) -> Turn | None:
        return None if chain.prompt is None else turns.add(chain.prompt)

    async def run(number: int, turn: Turn | None) -> None:
        nonlocal num_finished
        with turn or nullcontext():
            ended[number] = await attempt(chain.cells[number], turn)
        while num_finished in ended:
            cell, trajectory = chain.cells[num_finished], ended.pop(num_finished)
            num_finished += 1
            if trajectory is not None:
                await finish(cell, trajectory)

    async with asyncio.TaskGroup() as group:
        trunk = turn_of(0)
        group.create_task(run(0, trunk))
        if trunk is not None:
            await trunk.moved()  # Before that the others could only wait, each as a task of its own.
        for number in range(1, len(chain.cells)):
            group.create_task(run(number, turn_of(number)))
