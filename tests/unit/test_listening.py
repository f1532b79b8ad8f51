"""The helper that looks at listening sockets sees those of descendants, and which can be called from elsewhere."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.listening import Place, left, listening, watched

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


LEAVE = """
import os, socket, sys
from multiprocessing import shared_memory
directory = sys.argv[1]
kept = []
for place in (directory + "/guessed.sock", directory + "/own/hidden.sock", "\\0" + os.path.basename(directory)):
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].bind(place)
kept.append(shared_memory.SharedMemory(create=True, size=1))
kept.extend(open(directory + name, "w") for name in ("/open.log", "/own/log"))
print(kept[3]._name, flush=True)
input()
"""


@pytest.fixture
def everybodys() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    directory.chmod(0o1777)
    (directory / "own").mkdir(mode=0o700)
    yield directory
    shutil.rmtree(directory)


def test_sockets_and_files_that_other_users_get_to_are_told_from_those_of_ours(everybodys: Path) -> None:
    command = [sys.executable, "-c", LEAVE, str(everybodys)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    segment = process.stdout.readline().strip()
    found = {each.path: each.exposed for each in left(psutil.Process()) if str(everybodys) in each.command}
    process.communicate("\n")
    assert found == {
        f"{everybodys}/guessed.sock": True,
        f"@{everybodys.name}": True,
        f"{everybodys}/own/hidden.sock": False,
        f"{everybodys}/open.log": True,
        f"{everybodys}/own/log": False,
        f"/dev/shm{segment}": False,
    }
