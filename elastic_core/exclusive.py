"""One process at a time in a directory."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LockHeld(RuntimeError):
    """Another process has the directory; the message names it."""


@contextmanager
def exclusive(directory: Path, wait_seconds: float = 0) -> Iterator[None]:
    """Have the directory to oneself. The lock of a killed process is free.

    Args:
        wait_seconds: how long to queue behind another process; negative is without end.

    Raises:
        LockHeld: when another process has it.
    """
    from filelock import FileLock, Timeout

    directory.mkdir(parents=True, exist_ok=True)
    # Who holds it goes to a second file: trying the lock may empty the first.
    owner = directory / ".writer.json"
    lock = FileLock(directory / ".lock")
    try:
        lock.acquire(timeout=wait_seconds, poll_interval=0.5)
    except Timeout:
        raise LockHeld(_holder(owner)) from None
    try:
        owner.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def _holder(owner: Path) -> str:
    try:
        holder = json.loads(owner.read_text())
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):  # It may be starting or ending at this moment.
        return "another process"
