"""The sockets that processes listen on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import NamedTuple

import psutil


class Place(NamedTuple):
    """Where one of the processes listened, and which it was: the end of its command line."""

    address: str
    port: int
    command: str

    @property
    def is_loopback(self) -> bool:
        address = ip_address(self.address)
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def listening(root: psutil.Process) -> set[Place]:
    """What a process and all its descendants listen on now, over TCP, and over UDP where anybody may send to it."""
    found = set()
    with suppress(psutil.NoSuchProcess):
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):  # It may end while it is looked at.
                command = " ".join(process.cmdline())[-200:]
                for each in process.net_connections("inet"):
                    # A UDP socket that is bound and not connected takes what anybody sends.
                    if each.status == psutil.CONN_LISTEN or (each.status == psutil.CONN_NONE and not each.raddr):
                        found.add(Place(each.laddr.ip, each.laddr.port, command))
    return found


@contextmanager
def watched(root: psutil.Process, seconds: float = 0.2) -> Iterator[set[Place]]:
    """Everything that a process and its descendants listen on meanwhile, looked at every so many seconds."""
    seen: set[Place] = set()
    stopping = threading.Event()

    def look() -> None:
        while not stopping.wait(seconds):
            seen.update(listening(root))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        thread.join()
