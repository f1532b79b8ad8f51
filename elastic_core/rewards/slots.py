"""How many programs run at a time on a machine: as many as it has processors, whichever processes grade them.

A training has several that drive rollouts, and each would start a sandbox for every rollout that has ended.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elastic_core.errors import UserError

_SECONDS_BETWEEN_LOOKS = 0.05
_queue = threading.Lock()
"""One thread of a process looks for a free slot; the others wait for it to find one."""


def num_slots() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def slot() -> Iterator[None]:
    """Inside, one of the machine's slots is taken. That of a process which was killed is free.

    Raises:
        UserError: as `own_directory`.
    """
    with _queue:
        while (taken := _take()) is None:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
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
    """Where the graders of this user on this machine meet; nobody else can write there.

    Raises:
        UserError: when there is something else, or another user's.
    """
    directory = Path(tempfile.gettempdir(), f"elastic-programs-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()  # Not of what a link of another user leads to.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise UserError(
            f"{directory} is not a directory that only user {os.getuid()} can write to; remove it, or set TMPDIR to "
            "another directory"
        )
    return directory
