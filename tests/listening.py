"""The sockets that processes listen on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import NamedTuple

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


@contextmanager
def watched(root: psutil.Process, seconds: float = 0.5) -> Iterator[set[Place]]:
    """Everything that a process and its descendants listen on meanwhile, looked at every so many seconds: what comes
    and goes between two looks is missed. At the end it is looked at once more."""
    seen: set[Place] = set()
    stopping = threading.Event()

    def look() -> None:
        while not stopping.wait(seconds):
            seen.update(listening(root))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
        seen.update(listening(root))
    finally:
        stopping.set()
        thread.join()
