"""What a command shows, and what goes to its log."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.records import terminal

SCRIPT = """
import logging, os, subprocess, sys
from pathlib import Path
from tasks.records import terminal

logger = logging.getLogger("prefect.flow_runs")
logger.setLevel(logging.INFO)
try:
    with terminal.quiet(Path(sys.argv[1])):
        print("chatter of ours")
        os.write(2, b"chatter of a library\\n")
        subprocess.run(["echo", "chatter of a child"], check=True)
        logger.info("chatter of Prefect")
        logger.info("a stage", extra=terminal.TOLD)
        logger.warning("a warning")
        terminal.print_result("a result")
        sys.argv[2:] and exec("raise RuntimeError('broken')")
finally:
    print("afterwards")
"""


def ran(log: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, str(log), *more]
    return subprocess.run(command, text=True, capture_output=True, cwd=Path(__file__).parents[2], check=False)


def test_a_log_has_what_everybody_prints_and_the_terminal_what_is_told(tmp_path: Path) -> None:
    done = ran(tmp_path / "new" / "log")
    assert done.stdout.splitlines() == ["a result", "afterwards"]
    assert done.stderr.splitlines() == [f"log: {tmp_path / 'new' / 'log'}", "a stage", "a warning"]
    logged = (tmp_path / "new" / "log").read_text()
    assert all(f"chatter of {who}" in logged for who in ("ours", "a library", "a child"))


def test_an_error_is_shown(tmp_path: Path) -> None:
    done = ran(tmp_path / "log", "break")
    assert done.returncode == 1 and done.stderr.strip().endswith("RuntimeError: broken")
    assert done.stdout.splitlines()[-1] == "afterwards"


def test_a_full_disk_of_the_log_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    done = ran(Path("/dev/full"))
    assert done.returncode == 1 and done.stderr.strip().endswith("OSError: [Errno 28] No space left on device")
    assert done.stdout == "afterwards\n"


def test_no_log_is_named_where_nothing_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with terminal.quiet(tmp_path / "log"):
        os.write(2, b"chatter")
    assert "".join(capfd.readouterr()) == ""


def test_a_log_keeps_what_it_had(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ran(log)
    before = log.read_text()
    ran(log)
    assert log.read_text().startswith(before) and len(log.read_text()) > len(before)


@pytest.mark.parametrize(("done", "left"), [(0, "starting"), (1, "starting"), (3, "about 0:00:14 left")])
def test_what_is_left_is_told_by_the_speed_since_the_first_unit(done: int, left: str) -> None:
    """Two units in four seconds, after an hour of starting."""
    from rich.progress import Progress

    from tasks.records.terminal import _left

    clock = iter([0.0, *(3600.0 + 2 * i for i in range(9))])
    bar = Progress(get_time=lambda: now, speed_estimate_period=300)
    now = next(clock)
    task = bar.add_task("train", total=10)
    for step in range(1, done + 1):
        now = next(clock)
        bar.update(task, completed=step)
    assert _left(bar.tasks[0]) == left
