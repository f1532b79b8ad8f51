"""A program's share of a machine that has fewer processors than programs.

The machine runs at most one program a processor, whichever processes grade them (`slot`): a training has
several that drive rollouts, and each would start a sandbox for every rollout that has ended. And a program's limits are
in `OwnTime`: on a busy machine the same program takes several times as long on the clock on the wall.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from elastic_core.system.private_stores import private_directory

_POLL_SECONDS = 0.05
_NANOSECONDS = 1e9
_queue = threading.Lock()  # one thread of a process looks for a free slot; the others wait for it to find one


def num_slots() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def slot() -> Iterator[None]:
    """Take one of the machine's slots; that of a killed process is free. UserError as `private_directory`."""
    with _queue:
        while (taken := _take()) is None:
            time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        os.close(taken)


def _take() -> int | None:
    """The descriptor that holds a slot; None when all are taken."""
    directory = own_directory()
    for number in range(num_slots()):
        descriptor = os.open(directory / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return descriptor
    return None


def own_directory() -> Path:
    """Directory of the locks of this user's graders on this machine. UserError as `private_directory`."""
    directory = private_directory() / "programs"
    directory.mkdir(exist_ok=True)
    return directory


class OwnTime:
    """Seconds as of `time.monotonic`, less the time that `update` has seen spent waiting for a processor.

    Threads that wait side by side count once: between two updates, the one that waited longest. Where the kernel does
    not count (no CONFIG_SCHED_INFO), this is the clock on the wall.
    """

    def __init__(self) -> None:
        self._waited = 0.0
        self._seen: dict[int, int] = {}
        self._updated = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._waited

    def since_update(self) -> float:
        """Seconds on the clock on the wall since the last update."""
        return time.monotonic() - self._updated

    def update(self, waited: Mapping[int, int]) -> None:
        """Take note of how long threads have waited in their life: nanoseconds, by thread id."""
        now = time.monotonic()
        longest = max((total - self._seen.get(thread, 0) for thread, total in waited.items()), default=0)
        # Of a thread that was not seen before, part of it may be older than the last update.
        self._waited += min(max(0, longest) / _NANOSECONDS, now - self._updated)
        self._seen, self._updated = dict(waited), now


def nanoseconds_waited(task: Path) -> int:
    """How long a thread, /proc/PID/task/THREAD, has waited for a processor; 0 where that is not known."""
    try:
        return int((task / "schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):  # It has just ended, or the kernel does not count.
        return 0


def threads_below(pid: int, limit: int) -> dict[int, int]:
    """`nanoseconds_waited` of each thread below a process, by thread id; not many more than `limit`."""
    threads: dict[int, int] = {}
    waiting = [pid]
    while waiting and len(threads) <= limit:
        process = waiting.pop()
        with suppress(OSError):  # it has just ended
            tasks = islice(Path(f"/proc/{process}/task").iterdir(), limit + 1)
            threads |= {int(task.name): nanoseconds_waited(task) for task in tasks}
            waiting += children(process)
    return threads


def children(pid: int) -> list[int]:
    """Processes that a process has started; none when it has ended."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
