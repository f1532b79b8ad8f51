"""A directory that one process at a time has to itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from elastic_core.system.files import LockHeld, exclusive

HOLD = """
import sys, pathlib
from elastic_core.system.files import exclusive
with exclusive(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_told_who_has_it_and_a_killed_one_does_not_block(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for _ in range(2):
            with pytest.raises(LockHeld, match=f"process {holder.pid} on"), exclusive(tmp_path):
                pass
    finally:
        holder.kill()
        holder.communicate()
    with exclusive(tmp_path):
        pass


def test_a_process_that_waits_gets_it_when_it_is_left(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None and holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.stdin.close()
    with exclusive(tmp_path, wait_seconds=-1):
        assert holder.wait() == 0
