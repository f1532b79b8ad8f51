"""Files that appear in full or not at all, one process at a time in a directory, and text that others chose, such as
names of models and benchmarks, in files that programs interpret."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastic_core.errors import UserError

if TYPE_CHECKING:
    import polars as pl

_MARKDOWN = re.compile(r"[\\`*|]|<(?=[A-Za-z/!?])|&(?=[#A-Za-z])|\](?=[(\[])")
_FORMULA = re.compile(r"[=+\-@\t\r]")
_IMPOSTORS = {
    b"<!doctype html": "an HTML page came in place of data",
    b"<html": "an HTML page came in place of data",
    b"version https://git-lfs": "a pointer of Git LFS lies in place of data: run `git lfs pull` where it was cloned",
}


class LockHeld(RuntimeError):
    """Another process has the directory; the message names it."""


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary path in its directory to write a file to; it takes the name of `path` when the block succeeds.
    `durable` files survive a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        (rename_durably if durable else Path.replace)(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_directory(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """`replacing` of an empty directory to fill, for one process at a time: leftovers of a killed one are removed."""
    temporary, former = (path.with_name(f".{path.name}.{name}") for name in ("tmp", "old"))
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if durable:  # A disk that fails, or is full only now, shall leave the former one.
            _flush_all(temporary)
        shutil.rmtree(former, ignore_errors=True)
        with suppress(FileNotFoundError):  # A deletion that is interrupted must not leave half of it under its name.
            path.rename(former)
        temporary.replace(path)
        if durable:
            _flush(path.parent)
    finally:
        for left in (temporary, former):
            shutil.rmtree(left, ignore_errors=True)


def read_toml(file: Path, expected: str = "TOML") -> dict[str, Any]:
    """Read a user's TOML file, with or without a byte order mark; UserError when that fails."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:  # ValueError: TOML or UTF-8.
        raise UserError(f"{file}: {error}; expected {expected}") from None


def impostor(head: bytes) -> str | None:
    """Recognise a file that came in place of data by its first 256 bytes: a clause for a message, or None."""
    head = head.lstrip().lower()
    return next((what for start, what in _IMPOSTORS.items() if head.startswith(start)), None)


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """`replacing` with a text in UTF-8."""
    with replacing(path, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


def rename_durably(path: Path, target: Path) -> None:
    """Rename a file or a directory: the new name and all that is in it survive a power cut."""
    _flush_all(path)
    path.replace(target)
    _flush(target.parent)


def _flush_all(path: Path) -> None:
    for file in (path, *path.rglob("*")):
        _flush(file)


def _flush(path: Path) -> None:
    """Have a file, or the names in a directory, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive(directory: Path, wait_seconds: float = 0) -> Iterator[None]:
    """Lock the directory; a killed process holds no lock. Raises LockHeld when another process still has it after
    `wait_seconds` (negative: wait without end)."""
    from filelock import FileLock, Timeout

    directory.mkdir(parents=True, exist_ok=True)
    # The holder's name goes to a second file: trying the lock may empty the first.
    owner = directory / ".writer.json"
    lock = FileLock(directory / ".lock")
    try:
        lock.acquire(timeout=wait_seconds, poll_interval=0.5)
    except Timeout:
        try:
            holder = json.loads(owner.read_text())
            name = f"process {holder['pid']} on {holder['host']}"
        except (OSError, ValueError, KeyError, TypeError):  # It may be starting or ending at this moment.
            name = "another process"
        raise LockHeld(name) from None
    try:
        owner.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


class Markdown(str):
    """Text that is Markdown already, and meant so."""

    __slots__ = ()


def escaped(value: Any) -> Markdown:
    """A value as one line of Markdown that shows it literally: no markup, HTML, link or end of a table's cell."""
    if isinstance(value, Markdown):
        return value
    return Markdown(_MARKDOWN.sub(r"\\\g<0>", " ".join(str(value).split())))


def write_csv(frame: pl.DataFrame, path: Path, float_precision: int) -> None:
    """Write a table for spreadsheets: an apostrophe before a text marks one that they would take for a formula."""
    import polars as pl

    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    safe = frame.with_columns(pl.col(texts).str.replace(rf"^({_FORMULA.pattern})", "'${1}"))
    safe = safe.rename({name: f"'{name}" for name in frame.columns if _FORMULA.match(name)})
    safe.write_csv(path, float_precision=float_precision)
