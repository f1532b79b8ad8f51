"""A program that passes on an idle machine passes on a busy one."""

import os
import subprocess
import sys
import threading

import pytest

from elastic_core.rewards import GradeStatus
from elastic_core.rewards import code as runners
from elastic_core.rewards.truth import CodeTest, CodeTruth

COMPETITORS = 7
BURN = "import time\nwhile time.process_time() < 0.5: pass\nprint(1)"
"""Half a second of work: four seconds among seven others on one processor."""


@pytest.mark.parametrize(
    "truth",
    [
        CodeTruth("stdin", (CodeTest("", "1"),)),
        CodeTruth("functional", (CodeTest("", "1"),), method="solve"),
        CodeTruth("check", code="assert solve() == 1"),
    ],
    ids=lambda truth: truth.kind,
)
def test_waiting_for_a_processor_is_not_the_program_s_time(truth: CodeTruth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "TEST_SECONDS", 2.0)
    monkeypatch.setattr(runners, "PROGRAM_SECONDS", 2.0)
    function = "import time\ndef solve():\n    began = time.process_time()\n"
    function += "    while time.process_time() - began < 0.5: pass\n    return 1\n"
    found: list[GradeStatus] = []
    processor = min(os.sched_getaffinity(0))
    command = ["taskset", "--cpu-list", str(processor), sys.executable, "-c", "while True: pass"]
    competitors = [subprocess.Popen(command) for _ in range(COMPETITORS)]

    def grade() -> None:
        os.sched_setaffinity(0, {processor})  # Of this thread, and so of the sandbox.
        found.append(runners.run(BURN if truth.kind == "stdin" else function, truth))

    thread = threading.Thread(target=grade)
    try:
        thread.start()
        thread.join()
    finally:
        for competitor in competitors:
            competitor.kill()
            competitor.wait()
    assert found == [GradeStatus.CORRECT]
