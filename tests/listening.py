"""The sockets that processes listen on, and what they leave where every user of the machine may write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import psutil


class Place(NamedTuple):
    """Where one of the processes listened, and its command line."""

    address: str
    port: int
    command: str

    @property
    def is_loopback(self) -> bool:
        address = ip_address(self.address)
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def listening(root: psutil.Process) -> set[Place]:
    """What a process and all its descendants listen on now, over TCP."""
    family = {process.pid: process for process in (root, *root.children(recursive=True))}
    found = set()
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.pid in family:
            with suppress(psutil.Error):  # It may have ended since.
                command = " ".join(family[each.pid].cmdline())
                found.add(Place(each.laddr.ip, each.laddr.port, command))
    return found


SHARED = tuple(map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")))
"""Where every user may write."""


class Left(NamedTuple):
    """A Unix socket that one of the processes had open, or a file in a shared directory that it could write to; whether
    another user could get to it; the process's command line."""

    path: str
    exposed: bool
    command: str


def left(root: psutil.Process) -> set[Left]:
    """Of all descendants of a process, now. Its own output may go to a file anywhere."""
    family = {process.pid: process for process in root.children(recursive=True)}
    found = {(each.pid, each.laddr, True) for each in psutil.net_connections("unix") if each.laddr}
    for process in family.values():
        with suppress(psutil.Error):
            found |= {(process.pid, file.path, False) for file in process.open_files() if file.mode != "r"}
    seen = set()
    for number, path, is_socket in found:
        if number in family and (is_socket or _is_shared(path)):
            with suppress(psutil.Error, FileNotFoundError):  # It may have ended, or been removed, since.
                seen.add(Left(path, _is_exposed(path, is_socket), " ".join(family[number].cmdline())))
    return seen


def _is_shared(path: str) -> bool:
    return any(map(Path(path).is_relative_to, SHARED))


def _is_exposed(path: str, is_socket: bool) -> bool:
    """A socket is in reach without a file, by an abstract name, and where others may enter its directories: they could
    have bound its name first. What others can do to a file is in its mode."""
    if is_socket and path.startswith("@"):
        return True
    if not _is_shared(path) or any(not parent.stat().st_mode & 0o077 for parent in Path(path).parents):
        return False
    return is_socket or bool(Path(path).stat().st_mode & 0o077)


@contextmanager
def watched(
    root: psutil.Process, seconds: float = 0.5, look: Callable[[psutil.Process], set[Any]] = listening
) -> Iterator[set[Any]]:
    """Everything that a process and its descendants listen on meanwhile, or what `look` finds else, looked at every so
    many seconds: what comes and goes between two looks is missed. At the end it is looked at once more."""
    seen: set[Any] = set()
    stopping = threading.Event()

    def keep_looking() -> None:
        while not stopping.wait(seconds):
            seen.update(look(root))

    thread = threading.Thread(target=keep_looking, daemon=True)
    thread.start()
    try:
        yield seen
        seen.update(look(root))
    finally:
        stopping.set()
        thread.join()
