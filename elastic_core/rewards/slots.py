"""How many programs run at a time on a machine: as many as it has processors, whichever processes grade them.

A training has several that drive rollouts, and each would start a sandbox for every rollout that has ended.
"""

from __future__ import annotations

import fcntl
import os
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
        UserError: when the directory of the slots is another user's.
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
    directory = _directory()
    for number in range(num_slots()):
        descriptor = os.open(directory / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return descriptor
    return None


def _directory() -> Path:
    directory = Path(tempfile.gettempdir(), f"elastic-programs-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise UserError(f"{directory} is another user's; expected one's own: set TMPDIR to another directory")
    return directory
