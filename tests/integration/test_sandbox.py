"""The sandbox against programs that try to pass, to escape, or to hang. Without bubblewrap these fail."""

import contextlib
import ctypes
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from elastic_core.errors import UserError
from elastic_core.rewards import code as runners
from elastic_core.rewards import grade
from elastic_core.rewards.code import bubblewrap, grade_code, sandbox, seccomp
from elastic_core.rewards.truth import CodeTest, CodeTruth, GradeStatus
from tests.hostile_programs import GROUPS, HOSTILE, Hostile

MEMORY = 256 << 20
_PR_SET_CHILD_SUBREAPER = 36

CALLS = {
    "stdin": "value = attack(input())\nprint(value)\n",
    "functional": "def solve(x):\n    return attack(x)\n",
    "check": "def solve(x):\n    return attack(x)\n",
    "check, at import": "attack(None)\ndef solve(x):\n    return None\n",
}


class Outside(NamedTuple):
    """What programs would like to reach: a service, a folder, and the right answer."""

    port: int
    socket_name: str
    canary: Path
    secret: str
    heard: list[str]

    def program(self, text: str) -> str:
        named = {"@PORT@": str(self.port), "@SOCKET@": self.socket_name, "@CANARY@": str(self.canary)}
        for name, value in named.items():
            text = text.replace(name, value)
        return text

    def truth(self, kind: str) -> CodeTruth:
        if kind == "stdin":
            return CodeTruth("stdin", (CodeTest("1\n", self.secret),) * 2)
        if kind == "functional":
            return CodeTruth("functional", (CodeTest("1", json.dumps(self.secret)),) * 2, method="solve")
        code = f"def check(candidate):\n    assert candidate(1) == {self.secret!r}\n\n\ncheck(solve)\n"
        return CodeTruth("check", code=code, entry_point="solve")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    monkeypatch.setattr(runners, "MEMORY", MEMORY)
    secret = secrets.token_hex(16)
    monkeypatch.setenv("ELASTIC_TEST_SECRET", secret)
    (tmp_path / "secret").write_text(secret)
    name = f"elastic-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = stream.getsockname()[1]
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", port))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{name}")
        abstract.listen()
        heard: list[str] = []
        stack.callback(_listen([stream, datagrams, abstract], heard))
        yield Outside(port, name, tmp_path, secret, heard)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For programs that hang. Others get the time they have in use: a busy machine must not change their status."""
    monkeypatch.setattr(runners, "TEST_SECONDS", 1.0)
    monkeypatch.setattr(runners, "PROGRAM_SECONDS", 2.0)


def _listen(sockets: list[socket.socket], heard: list[str]) -> object:
    """Note every contact. Returns what ends it."""
    ended = threading.Event()

    def listen(listener: socket.socket) -> None:
        listener.settimeout(0.1)
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                if listener.type == socket.SOCK_DGRAM:
                    listener.recvfrom(64)
                else:
                    listener.accept()[0].close()
                heard.append(str(listener.getsockname()))

    threads = [threading.Thread(target=listen, args=(listener,)) for listener in sockets]
    for thread in threads:
        thread.start()

    def end() -> None:
        ended.set()
        for thread in threads:
            thread.join()

    return end


def respond(program: str) -> str:
    return f"</think>\n```python\n{program}\n```\n"


def run(outside: Outside, hostile: Hostile, call: str) -> GradeStatus:
    kind = call.partition(",")[0]
    program = outside.program(hostile.program) + CALLS[call]
    return grade_code(respond(program), outside.truth(kind).encode()).status


def named(name: str) -> Hostile:
    return next(hostile for hostile in HOSTILE if hostile.name == name)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("every_call", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one call", "every"])
def test_no_hostile_program_passes_escapes_or_hangs(outside: Outside, group: str, every_call: bool) -> None:
    """Each program called in one of the four ways, which take turns; by `make chaos` in every way."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # whatever survived its parents would become a child of this
    before = set(psutil.Process().children(recursive=True))
    system = {path: set(path.iterdir()) for path in map(Path, ("/", "/etc", "/opt", "/usr/lib"))}

    def attempt(case: tuple[Hostile, str]) -> tuple[GradeStatus, float]:
        began = time.monotonic()
        return run(outside, *case), time.monotonic() - began

    calls = list(CALLS)
    turns = ((hostile, calls if every_call else [calls[n % len(calls)]]) for n, hostile in enumerate(GROUPS[group]))
    cases = [(hostile, call) for hostile, chosen in turns for call in chosen]
    with ThreadPoolExecutor(4) as pool:
        results = dict(zip(cases, pool.map(attempt, cases), strict=True))
    by_name = {f"{hostile.name} ({call})": result for (hostile, call), result in results.items()}
    # A failure of the sandbox would have been raised: no program may bring that about, as it stops the run in the end.
    assert [name for name, (status, _) in by_name.items() if status is GradeStatus.CORRECT] == []
    assert {name: seconds for name, (_, seconds) in by_name.items() if seconds > 600} == {}
    assert outside.heard == []
    assert [path.name for path in outside.canary.iterdir()] == ["secret"]
    assert {path: set(path.iterdir()) for path in system} == system
    assert set(psutil.Process().children(recursive=True)) - before == set()


def test_the_suite_is_as_large_as_promised() -> None:
    assert len({hostile.name for hostile in HOSTILE}) == len(HOSTILE) >= 60
    assert len({hostile.program for hostile in HOSTILE}) == len(HOSTILE)


@pytest.mark.parametrize("call", list(CALLS)[:3])
def test_a_program_that_knew_the_answer_would_pass(outside: Outside, call: str) -> None:
    knows = Hostile("knows", f"def attack(x):\n    return {outside.secret!r}\n")
    assert run(outside, knows, call) is GradeStatus.CORRECT


def test_the_listener_would_hear_of_an_escape(outside: Outside) -> None:
    socket.create_connection(("127.0.0.1", outside.port)).close()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"\0{outside.socket_name}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"out", ("127.0.0.1", outside.port))
    deadline = time.monotonic() + 600
    while len(outside.heard) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(outside.heard) == 3


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "name, call",
    [
        ("infinite_loop", "stdin"),
        ("infinite_loop", "functional"),
        ("infinite_loop", "check"),
        ("infinite_loop", "check, at import"),
        ("ignore_signals", "stdin"),
        ("fork_bomb_patient", "check"),
    ],
)
def test_a_program_that_hangs_is_a_timeout(outside: Outside, name: str, call: str) -> None:
    assert run(outside, named(name), call) is GradeStatus.TIMEOUT


@pytest.mark.parametrize(
    "name, call, status",
    [
        ("memory_bomb", "stdin", GradeStatus.RUNTIME_ERROR),
        ("fork_bomb", "functional", GradeStatus.RUNTIME_ERROR),
        ("thread_bomb", "stdin", GradeStatus.RUNTIME_ERROR),
        ("output_flood", "stdin", GradeStatus.RUNTIME_ERROR),
        ("large_answer", "functional", GradeStatus.RUNTIME_ERROR),
        ("segmentation_fault", "check", GradeStatus.RUNTIME_ERROR),
        ("kill_parents", "stdin", GradeStatus.RUNTIME_ERROR),
        ("always_equal", "check", GradeStatus.RUNTIME_ERROR),
        ("equal_text", "check", GradeStatus.WRONG),
        ("equal_number", "functional", GradeStatus.WRONG),
        ("say_passed", "stdin", GradeStatus.WRONG),
    ],
)
def test_the_status_says_what_happened(outside: Outside, name: str, call: str, status: GradeStatus) -> None:
    assert run(outside, named(name), call) is status


PROCESSES = """
import ctypes, os, subprocess, threading
ways = [os.fork, lambda: subprocess.run(["/opt/python/bin/python3.11", "-V"]), lambda: os.posix_spawn("/x", ["x"], {})]
for way in ways:
    try:
        way()
    except PermissionError:
        print("no")
print(ctypes.CDLL(None).vfork())
threads = [threading.Thread(target=print, args=("thread",)) for _ in range(2)]
for thread in threads:
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("kind", ["stdin", "functional"])
def test_a_program_may_start_threads_and_no_processes(kind: str) -> None:
    if kind == "stdin":
        program, truth = PROCESSES, CodeTruth("stdin", (CodeTest("", "no no no -1 thread thread"),) * 2)
    else:
        program = PROCESSES.replace("print", "said.append") + "\ndef f(): return said"
        truth = CodeTruth("functional", (CodeTest("", '["no", "no", "no", -1, "thread", "thread"]'),), method="f")
    assert grade_code(respond("said = []\n" + program), truth.encode()).status is GradeStatus.CORRECT


def test_closing_ends_every_process_before_it_returns() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for request in ("import time; time.sleep(1000)", "import os; os._exit(0)"):
        with sandbox.Sandbox("candidate", bubblewrap.Limits(1 << 30, 60)) as running:
            running.ready()
            inside = psutil.Process(running._process.pid).children(recursive=True)
            assert len(inside) == 2  # init and the program
            running.send(json.dumps(["load", request]).encode(), time.monotonic() + 600)
            with pytest.raises(sandbox.ProgramFailed):
                running.receive(time.monotonic() + 0.5)
        assert [process for process in inside if process.is_running()] == []


def _fake_bwrap(folder: Path, script: str) -> str:
    fake = folder / "bwrap"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    return str(folder)


def test_without_bubblewrap_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    truth = CodeTruth("stdin", (CodeTest("", ""),)).encode()
    with pytest.raises(UserError, match=r"apt-get install bubblewrap.*dnf install bubblewrap"):
        sandbox.require_sandbox()
    with pytest.raises(UserError, match="bubblewrap"):
        grade_code(respond("open('/tmp/in-process', 'w')"), truth)


@pytest.mark.parametrize("switch", list(sandbox._SWITCHES))
def test_where_namespaces_are_switched_off_the_user_is_told_the_switch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, switch: str
) -> None:
    monkeypatch.setenv("PATH", _fake_bwrap(tmp_path, "echo 'No permissions to create new namespace' >&2; exit 1"))
    off, command = sandbox._SWITCHES[switch]
    (tmp_path / "switch").write_text(off)
    monkeypatch.setattr(sandbox, "_SWITCHES", {str(tmp_path / "switch"): (off, command)})
    with pytest.raises(UserError, match=r"No permissions to create new namespace.*sysctl -w") as error:
        sandbox.require_sandbox()
    assert command in str(error.value)


def test_in_a_pod_that_may_not_the_user_is_told_what_the_pod_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", _fake_bwrap(tmp_path, "echo 'Operation not permitted' >&2; exit 1"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(sandbox, "_SWITCHES", {})
    problem = sandbox.sandbox_problem()
    assert problem and "Operation not permitted" in problem and problem.endswith("securityContext: {privileged: true}.")


@pytest.mark.parametrize("kind", ["stdin", "functional", "check"])
def test_a_failure_of_the_sandbox_is_none_of_the_program(
    outside: Outside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    sandbox.require_sandbox()
    path = _fake_bwrap(tmp_path, "exit 1")
    monkeypatch.setattr(bubblewrap, "find_bwrap", lambda: f"{path}/bwrap")
    with pytest.raises(sandbox.SandboxFailed):
        grade_code(respond("print(1)"), outside.truth(kind).encode())


def test_a_sandbox_that_cannot_start_for_now_is_tried_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pauses: list[float] = []
    # Tests of another process may have all of the machine's slots for programs: waiting for one is no pause.
    monkeypatch.setattr(time, "sleep", lambda seconds: pauses.append(seconds) if seconds >= 1 else None)
    real, busy = bubblewrap.find_bwrap(), tmp_path / "busy"
    refusal = "echo 'bwrap: Creating new namespace failed: Resource temporarily unavailable' >&2; exit 1"
    script = f'if [ "$1" != --help ] && rm {busy} 2>/dev/null; then {refusal}; fi; exec {real} "$@"'
    monkeypatch.setenv("PATH", f"{_fake_bwrap(tmp_path, script)}:{os.environ['PATH']}")
    busy.touch()
    sandbox.require_sandbox()
    assert len(pauses) == 1
    busy.touch()
    truth = CodeTruth("stdin", (CodeTest("", "1"),)).encode()
    assert grade("code", respond("print(1)"), truth).status is GradeStatus.CORRECT
    assert len(pauses) == 2


def test_a_program_for_which_there_is_no_process_is_not_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.require_sandbox()
    no_forks = seccomp._filter(None, [], (seccomp._FORKS,), (seccomp._THREADS_ONLY,))
    monkeypatch.setattr(bubblewrap, "system_call_filter", lambda: no_forks)
    with pytest.raises(sandbox.SandboxFailed, match="no process for the program"):
        grade_code(respond("print(1)"), CodeTruth("stdin", (CodeTest("", "1"),)).encode())
