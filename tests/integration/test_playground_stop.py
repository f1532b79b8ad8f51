"""Ctrl-C ends the playground while an engine loads: without waiting for it, and without leaving a process.

No timing decides: here engines never become ready, so that waiting for one would never end.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from elastic_core.system.network import free_ports
from tests.elastic_command import ELASTIC, environment

# tests/e2e/test_playground_page.py ends one by SIGTERM that is ready.
pytestmark = pytest.mark.slow

HELD = """
import subprocess, sys, time
from flows.commands import answer

def never_ready(*arguments):
    # As vLLM's constructor does, it starts a process and returns to nobody meanwhile.
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", "the engine"])
    while True:
        time.sleep(1)

answer.VllmEngine = never_ready
from flows.commands.cli import cli
cli(["playground", "--port", sys.argv[1]])
"""


def start(runs: Path, *command: str) -> "subprocess.Popen[bytes]":
    with (runs / "log").open("wb") as log:
        return subprocess.Popen(command, env=environment(runs), stdout=log, stderr=subprocess.STDOUT)


def wait_for_child(process: "subprocess.Popen[bytes]", name: str) -> psutil.Process:
    """The descendant that is called so."""
    until = time.monotonic() + 600
    while True:
        for child in psutil.Process(process.pid).children(recursive=True):
            if name in child.name() or name in " ".join(child.cmdline()):
                return child
        assert process.poll() is None and time.monotonic() < until, f"no {name}"
        time.sleep(0.05)


def stop(process: "subprocess.Popen[bytes]", number: int, log: Path) -> list[psutil.Process]:
    """What is left of it."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    try:
        assert process.wait(600) == 0, log.read_text()[-3000:]
    finally:
        process.kill()
        left = psutil.wait_procs(family, timeout=600)[1]
        for child in left:
            child.kill()
    return left


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_engine_that_holds_its_thread_is_not_waited_for(tmp_path: Path, number: int) -> None:
    process = start(tmp_path, sys.executable, "-c", HELD, str(free_ports(1)[0]))
    wait_for_child(process, "the engine")
    assert stop(process, number, tmp_path / "log") == []
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_an_engine_whose_process_is_not_ready_ends_with_it(tmp_path: Path) -> None:
    """The real one, whose process is suspended before it can answer."""
    process = start(tmp_path, ELASTIC, "playground", "--port", str(free_ports(1)[0]))
    core = wait_for_child(process, "VLLM::EngineCor")
    os.kill(core.pid, signal.SIGSTOP)
    assert stop(process, signal.SIGINT, tmp_path / "log") == []
