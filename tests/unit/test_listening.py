"""The helper that looks at listening sockets sees those of descendants, and which can be called from elsewhere."""

import subprocess
import sys

import psutil

from tests.listening import Place, listening, watched

LISTEN = """
import socket, subprocess, sys
if len(sys.argv) > 1:
    subprocess.Popen([sys.executable, *sys.orig_argv[1:-1]])
open_to_all = socket.create_server(("", 0))
private = socket.create_server(("127.0.0.1", 0))
print("listening", flush=True)
input()
"""


def test_sockets_of_descendants_are_seen() -> None:
    with watched(psutil.Process(), seconds=0.05) as seen:
        process = subprocess.Popen(
            [sys.executable, "-c", LISTEN, "with a child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["listening\n"] * 2
        now = listening(psutil.Process(process.pid))
        seen_at_least = set(now)
        assert sorted(place.is_loopback for place in now) == [False, False, True, True]
        process.communicate("\n\n")
    assert not [place for place in now if "socket.create_server" not in place.command]
    assert seen is not seen_at_least


def test_loopback_has_many_forms() -> None:
    for address, loopback in (("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True)):
        assert Place(address, 1, "").is_loopback is loopback
    for address in ("0.0.0.0", "::", "192.0.2.1", "::ffff:0.0.0.0", "fe80::1"):
        assert not Place(address, 1, "").is_loopback
