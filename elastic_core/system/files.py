"""Files and directories appear whole or not at all; and one process at a time in a directory."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LockHeld(RuntimeError):
    """Another process has the directory; the message names it."""


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary path beside `path` to write a file to; it takes the name of `path` when the block succeeds.

    Args:
        durable: afterwards the file survives a power cut too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _rename(temporary, path, durable)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_directory(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """As `replacing`, of an empty directory to fill. What a killed process left of it is removed, as it may be large:
    one process at a time."""
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        shutil.rmtree(path, ignore_errors=True)
        _rename(temporary, path, durable)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """As `replacing`, with a text in UTF-8."""
    with replacing(path, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


def rename_durably(path: Path, target: Path) -> None:
    """Give a file or a directory, with all that is in it, another name, which it has after a power cut too."""
    _flush(path)
    for folder, directories, files in os.walk(path):
        for name in (*directories, *files):
            _flush(Path(folder, name))
    path.replace(target)
    _flush(target.parent)


def _rename(temporary: Path, path: Path, durable: bool) -> None:
    if durable:
        rename_durably(temporary, path)
    else:
        temporary.replace(path)


def _flush(path: Path) -> None:
    """Have a file, or the names in a directory, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
