"""Grading on a busy machine: as many programs at a time as it has processors, and a clock that leaves waiting out."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from elastic_core.rewards.code import processors
from elastic_core.rewards.code.processors import OwnTime, nanoseconds_waited

SECOND = 1_000_000_000
HOLDER = """
from elastic_core.rewards.code import processors
processors.num_slots = lambda: 1
with processors.slot():
    print("held", flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def own_slots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_no_more_slots_are_taken_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "num_slots", lambda: 2)
    third = threading.Event()

    def take() -> None:
        with processors.slot():
            third.set()

    thread = threading.Thread(target=take)
    with processors.slot():
        with processors.slot():
            assert processors._take() is None
            thread.start()
        thread.join()  # It takes what was given back.
    assert third.is_set()


def test_processes_share_the_slots_and_a_killed_one_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "num_slots", lambda: 1)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout and holder.stdout.readline() == "held\n"
    assert processors._take() is None
    holder.kill()
    holder.communicate()
    with processors.slot():
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What `time.monotonic` says."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("before", "looks", "passed"),
    [
        ({1: 5}, [(10, {1: 12}), (4, {1: 12})], 7),  # 5 s were before it was asked; in the end it sleeps, or works.
        ({1: 0}, [(10, {1: 2, 2: 4, 3: 3})], 6),  # Threads that wait side by side count once.
        ({}, [(1, {1: 60})], 0),  # A new thread cannot turn the clock back.
        ({}, [(10, {1: None})], 10),  # Where the kernel does not count it is the clock on the wall.
    ],
)
def test_time_spent_waiting_for_a_processor_does_not_pass(
    clock: list[float],
    before: dict[int, float],
    looks: list[tuple[float, dict[int, float | None]]],
    passed: float,
    tmp_path: Path,
) -> None:
    own = OwnTime()
    if before:
        own.update({thread: int(waited * SECOND) for thread, waited in before.items()})
    began = own.now()
    for later, waited in looks:
        clock[0] += later
        own.update({i: nanoseconds_waited(tmp_path) if s is None else int(s * SECOND) for i, s in waited.items()})
    assert own.now() - began == pytest.approx(passed)
