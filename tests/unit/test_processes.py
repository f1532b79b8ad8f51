"""What `attended` promises, with processes that behave worse than any server does."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from elastic_core.system import processes
from elastic_core.system.retry import wait_until

STUBBORN = """
import signal, subprocess, sys, time
from pathlib import Path
from elastic_core.system import processes

processes._GRACE_SECONDS = 0.5
started = Path(sys.argv[1])
with processes.attended("elastic run pipeline"):
    # A grandchild whose parent is gone, in a session of its own, deaf to what asks it to end.
    deaf = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; print(flush=True)"
    deaf += "; time.sleep(1e4)"
    daemon = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {deaf!r}], start_new_session=True)"
    subprocess.run([sys.executable, "-c", daemon], stdout=started.open("a"))
    subprocess.Popen([sys.executable, "-c", deaf], stdout=started.open("a"))
"""
SWALLOWS = """
while True:
    try:
        time.sleep(1e4)
    except KeyboardInterrupt:
        started.with_name("asked").touch()
"""
GO_ON = "; what was finished is kept; to go on: elastic run pipeline\n"
FAILS = """
try:
    time.sleep(1e4)
except KeyboardInterrupt:
    raise ConnectionError("the server does not answer")
"""


def start(directory: Path, then: str, **how: object) -> tuple["subprocess.Popen[str]", list[psutil.Process]]:
    """A command that leads a process group, as in a terminal, and all that it started."""
    program = STUBBORN + textwrap.indent(then, "    ")
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(directory / "started")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **how,  # type: ignore[call-overload]
    )
    assert wait_until(lambda: (directory / "started").exists() and len((directory / "started").read_text()) == 2)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 3
    return process, family


def end(process: "subprocess.Popen[str]", family: list[psutil.Process]) -> str:
    """What it said."""
    told = process.communicate()[1]
    assert not [each for each in family if each.is_running()]
    return told


@pytest.mark.parametrize("then", [FAILS, SWALLOWS])
@pytest.mark.parametrize(
    ("number", "told"), [(signal.SIGINT, "Interrupt"), (signal.SIGTERM, "Terminated"), (signal.SIGHUP, "Hangup")]
)
def test_a_signal_ends_a_command_with_all_that_it_started(
    number: signal.Signals, told: str, then: str, tmp_path: Path
) -> None:
    process, family = start(tmp_path, then, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    os.killpg(process.pid, number)
    assert end(process, family) == f"{told}{GO_ON}"
    assert process.returncode == 128 + number


def test_a_second_ctrl_c_changes_nothing(tmp_path: Path) -> None:
    process, family = start(tmp_path, SWALLOWS)
    os.killpg(process.pid, signal.SIGINT)
    assert wait_until((tmp_path / "asked").exists, every=0.01)
    os.killpg(process.pid, signal.SIGINT)
    assert end(process, family) == f"Interrupt{GO_ON}"
    assert process.returncode == 130


@pytest.mark.parametrize(("then", "status"), [("", 0), ("sys.exit(2)", 2)])
def test_a_command_that_ends_by_itself_keeps_its_status_and_leaves_nothing(
    then: str, status: int, tmp_path: Path
) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    process, family = start(tmp_path, f"open({str(held)!r}).read(); {then}")
    held.write_text("")
    assert end(process, family) == "" and process.returncode == status


def test_a_command_that_is_killed_says_how_to_go_on(tmp_path: Path) -> None:
    process, family = start(tmp_path, FAILS)
    psutil.Process(process.pid).children()[0].kill()  # As the kernel does when memory is short.
    assert end(process, family) == f"Killed{GO_ON}"
    assert process.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize("then", ["os._exit(1)", "raise SystemExit(1)", "1 / 0"])
def test_a_command_that_fails_says_how_to_go_on_even_where_its_process_ends_without_a_word(
    then: str, tmp_path: Path
) -> None:
    """Ray's client ends its process so (std::_Exit) when it has not reached the head for as long as it may take."""
    os.mkfifo(tmp_path / "held")
    process, family = start(tmp_path, f"import os; open({str(tmp_path / 'held')!r}).read(); {then}")
    (tmp_path / "held").write_text("")
    said = end(process, family).splitlines()
    assert said[-1] == f"Ended with status 1; why is above, or at the end of its log{GO_ON}".strip()
    assert process.returncode == 1 and ("ZeroDivisionError" in "".join(said)) == (then == "1 / 0")


def test_under_nohup_a_command_outlives_its_terminal(tmp_path: Path) -> None:
    process, family = start(tmp_path, FAILS, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    os.killpg(process.pid, signal.SIGHUP)
    os.killpg(process.pid, signal.SIGTERM)
    assert end(process, family).startswith("Terminated;") and process.returncode == 143


def test_a_process_whose_main_thread_has_ended_is_killed_too() -> None:
    """It shows as a zombie, and what its other threads listen on stays open."""
    program = """
import ctypes, socket, threading, time
listening = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=time.sleep, args=(1e4,)).start()
print(listening.getsockname()[1], flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    assert wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    processes.kill_tree(process.pid)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port))
    assert process.wait(60) == -signal.SIGKILL
