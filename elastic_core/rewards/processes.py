"""What runs below a process, as /proc shows it."""

from __future__ import annotations

import contextlib
from itertools import islice
from pathlib import Path

from elastic_core.rewards.own_time import nanoseconds_waited


def threads_below(pid: int, limit: int) -> dict[int, int]:
    """How long each thread of a process and of all its descendants has waited for a processor, in nanoseconds.

    Args:
        limit: not many more threads than this are counted.
    """
    threads: dict[int, int] = {}
    waiting = [pid]
    while waiting and len(threads) <= limit:
        process = waiting.pop()
        with contextlib.suppress(OSError):  # it has just ended
            tasks = islice(Path(f"/proc/{process}/task").iterdir(), limit + 1)
            threads |= {int(task.name): nanoseconds_waited(task) for task in tasks}
            waiting += children(process)
    return threads


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
