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


def test_time_spent_waiting_for_a_processor_does_not_pass(clock: list[float]) -> None:
    own = OwnTime()
    own.update({1: 5 * SECOND})  # Before it was asked.
    began = own.now()
    clock[0] += 10
    own.update({1: 12 * SECOND})
    assert own.now() - began == pytest.approx(3)
    clock[0] += 4  # It sleeps, or works.
    own.update({1: 12 * SECOND})
    assert own.now() - began == pytest.approx(7)


def test_threads_that_wait_side_by_side_count_once(clock: list[float]) -> None:
    own = OwnTime()
    own.update({1: 0})
    began = own.now()
    clock[0] += 10
    own.update({1: 2 * SECOND, 2: 4 * SECOND, 3: 3 * SECOND})
    assert own.now() - began == pytest.approx(6)


def test_a_new_thread_cannot_turn_the_clock_back(clock: list[float]) -> None:
    own = OwnTime()
    began = own.now()
    clock[0] += 1
    own.update({1: 60 * SECOND})
    assert own.now() == began


def test_where_the_kernel_does_not_count_it_is_the_clock_on_the_wall(clock: list[float], tmp_path: Path) -> None:
    own = OwnTime()
    began = own.now()
    clock[0] += 10
    own.update({1: nanoseconds_waited(tmp_path)})
    assert own.now() - began == 10
