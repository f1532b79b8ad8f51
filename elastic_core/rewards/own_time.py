"""A clock that stands still while what it times waits for a processor.

A program's limits are those of the program: on a machine that runs more than it has processors, the same program takes
several times as long on the clock on the wall.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

_NANOSECONDS = 1e9


class OwnTime:
    """Seconds as of `time.monotonic`, less those spent waiting for a processor, as far as `look` has seen them.

    Threads that wait side by side count once: between two looks, the one that waited longest. Where the kernel does not
    count (no CONFIG_SCHED_INFO), this is the clock on the wall.
    """

    def __init__(self) -> None:
        self._waited = 0.0
        self._seen: dict[int, int] = {}
        self._looked = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._waited

    def since_look(self) -> float:
        """Seconds on the clock on the wall since the last look."""
        return time.monotonic() - self._looked

    def look(self, waited: Mapping[int, int]) -> None:
        """Take note of how long threads have waited in their life.

        Args:
            waited: nanoseconds by thread id, as `nanoseconds_waited`.
        """
        now = time.monotonic()
        longest = max((total - self._seen.get(thread, 0) for thread, total in waited.items()), default=0)
        # Of a thread that was not seen before, part of it may be older than the last look.
        self._waited += min(max(0, longest) / _NANOSECONDS, now - self._looked)
        self._seen, self._looked = dict(waited), now


def nanoseconds_waited(task: Path) -> int:
    """How long a thread has waited for a processor; 0 where that is not known.

    Args:
        task: /proc/PID/task/THREAD.
    """
    try:
        return int((task / "schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):  # It has just ended, or the kernel does not count.
        return 0
