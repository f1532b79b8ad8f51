"""A sandbox for untrusted programs, on bubblewrap; ../README.md lists its walls."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import platform
import select
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from elastic_core.errors import UserError
from elastic_core.rewards.code.bubblewrap import MAX_BYTES, MAX_FILES, MAX_PROCESSES, Limits, find_bwrap, start
from elastic_core.rewards.code.harness import HEADER, READY
from elastic_core.rewards.code.processors import OwnTime, children, nanoseconds_waited, threads_below
from elastic_core.rewards.code.seccomp import MACHINES
from elastic_core.rewards.truth import ATTEMPTS, FIRST_WAIT, GradeStatus, GradingFailed
from elastic_core.system.retry import retrying

TICK = 0.05  # seconds between two checks of a running sandbox

START_SECONDS = 60.0
"""A sandbox that has not started by then has failed; it takes a few hundredths of a second on an idle machine."""

_INSTALL = "apt-get install bubblewrap (Debian, Ubuntu) or dnf install bubblewrap (Fedora)"
_SWITCHES = {
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "/proc/sys/user/max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=15000"),
}

Harness = Literal["stdin", "candidate", "checker"]


class SandboxFailed(GradingFailed):
    """The sandbox did not start, or broke on our side: nothing is known about the program."""


class ProgramFailed(Exception):
    """The program is at fault. Why, as a status, and in words for debugging."""

    def __init__(self, status: GradeStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Sandbox:
    """One program of `harness`, running in a sandbox, and the channel to it. Not to be shared between threads.
    SandboxFailed when it could not be started."""

    def __init__(self, harness: Harness, limits: Limits, packages: Sequence[str] = ()) -> None:
        self._peers: tuple[Sandbox, ...] = ()
        self._time = OwnTime()
        self._init: int | None = None  # a pidfd
        # From inside: the program's /tmp, and pipes, made there, to write requests to and read answers from.
        self._folder = self._requests = self._answers = -1
        self._opened = contextlib.ExitStack()  # closes all descriptors
        self._socket, theirs = socket.socketpair()
        self._opened.enter_context(self._socket)
        try:
            self._process = start(harness, limits, packages, theirs)
        except OSError as error:
            self._socket.close()
            raise SandboxFailed(f"bubblewrap cannot be run: {error}") from error
        finally:
            theirs.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ready(self) -> None:
        """Wait until it has started, or SandboxFailed. No program is inside before; later failures are its."""
        try:
            answer = self._first_message(self.now() + START_SECONDS)
        except ProgramFailed as failure:
            raise SandboxFailed(f"the sandbox did not start ({failure}): {self._complaint()}") from failure
        if answer != READY or self._answers < 0:
            raise SandboxFailed(f"the sandbox began with {answer[:40]!r}")
        inside = children(self._process.pid)
        if inside:  # otherwise it has ended already, and the next message will say so
            with contextlib.suppress(ProcessLookupError):
                self._init = os.pidfd_open(inside[0])
                self._opened.callback(os.close, self._init)
        self._check()  # The wait until now is not the program's.

    def now(self) -> float:
        """Seconds that passed for the programs, by which deadlines are set: see `OwnTime`."""
        return self._time.now()

    def watch_with(self, other: Sandbox) -> None:
        """Check both while either is waited for, by one clock."""
        self._peers, other._peers = (other,), (self,)
        other._time = self._time
        self._check()

    def send(self, payload: bytes, deadline: float) -> None:
        """Send a frame. ProgramFailed if it is not taken by `deadline` (seconds of `now`), or the program fails
        before."""
        with self._end_is_the_programs():
            rest = memoryview(HEADER.pack(len(payload)) + payload)
            while rest:
                self._wait(self._requests, select.POLLOUT, deadline)
                rest = rest[os.write(self._requests, rest[: 1 << 16]) :]

    def send_descriptors(self, descriptors: Sequence[int], deadline: float) -> None:
        """Send file descriptors, to "stdin" only. Arguments and errors else as of `send`."""
        with self._end_is_the_programs():
            self._wait(self._socket.fileno(), select.POLLOUT, deadline)
            socket.send_fds(self._socket, [b"!"], list(descriptors))

    def receive(self, deadline: float, longest: int = MAX_BYTES) -> bytes:
        """The next frame from inside, of at most `longest` bytes. Arguments and errors else as of `send`."""
        with self._end_is_the_programs():
            (length,) = HEADER.unpack(self._read(HEADER.size, deadline))
            if length > min(longest, MAX_BYTES):
                raise ProgramFailed(GradeStatus.RUNTIME_ERROR, f"a message of {length} bytes")
            return self._read(length, deadline)

    def close(self) -> None:
        """Kill everything inside, and wait until it has ended. More than once does nothing more."""
        init, self._init = self._init, None
        if init is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(init, signal.SIGKILL)
            # The init of a namespace ends after all others in it.
            ended = select.poll()  # select takes no descriptor above 1023
            ended.register(init, select.POLLIN)
            ended.poll()
        with self._process:  # waits, and closes its pipe
            self._process.kill()
        if init is not None:
            # bubblewrap reaps it, unless it was itself the first to end; then this process may have inherited it.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, init, os.WEXITED)
        self._opened.close()
        self._folder = self._requests = self._answers = -1

    def _first_message(self, deadline: float) -> bytes:
        """What `harness.start` says, with descriptors."""
        with self._end_is_the_programs():
            self._wait(self._socket.fileno(), select.POLLIN, deadline)
            message, descriptors, _, _ = socket.recv_fds(self._socket, len(READY), 3)
        if not message:
            raise ProgramFailed(GradeStatus.RUNTIME_ERROR, "it ended")
        for descriptor in descriptors:
            self._opened.callback(os.close, descriptor)
        if len(descriptors) == 3:
            self._folder, self._requests, self._answers = descriptors
            os.set_blocking(self._requests, False)
        return message

    def _read(self, length: int, deadline: float) -> bytes:
        parts = []
        while length:
            self._wait(self._answers, select.POLLIN, deadline)
            part = os.read(self._answers, min(length, 1 << 20))
            if not part:
                raise ProgramFailed(GradeStatus.RUNTIME_ERROR, "it ended")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        while True:
            ready = bool(poll.poll(TICK * 1000))
            # By time and not by silence: a program may send a byte now and then.
            if self._time.since_update() >= TICK or self.now() > deadline:
                self._check()
            if self.now() > deadline:
                raise ProgramFailed(GradeStatus.TIMEOUT, "its time was up")
            if ready:
                return

    def _check(self) -> None:
        # This thread hands the answers on, so that its waiting is theirs.
        waited = {threading.get_native_id(): nanoseconds_waited(Path("/proc/thread-self"))}
        for sandbox in (self, *self._peers):
            threads = threads_below(sandbox._process.pid, MAX_PROCESSES)
            if len(threads) > MAX_PROCESSES:
                raise ProgramFailed(GradeStatus.RUNTIME_ERROR, f"more than {MAX_PROCESSES} processes and threads")
            waited |= threads
            tmp = None if sandbox._folder < 0 else os.statvfs(sandbox._folder)
            if tmp and tmp.f_files - tmp.f_ffree > MAX_FILES:
                raise ProgramFailed(GradeStatus.RUNTIME_ERROR, f"more than {MAX_FILES} files")
        self._time.update(waited)

    @contextlib.contextmanager
    def _end_is_the_programs(self) -> Iterator[None]:
        try:
            yield
        except ConnectionError as error:
            raise ProgramFailed(GradeStatus.RUNTIME_ERROR, f"it broke its channel: {error}") from error

    def _complaint(self) -> str:
        """What bubblewrap or Python said before it failed."""
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        return os.read(self._process.stderr.fileno(), 4096).decode(errors="replace").strip()


def require_sandbox() -> None:
    """UserError when programs cannot be run in a sandbox here, with what to install or to switch on."""
    _require(os.environ.get("PATH", os.defpath))


def sandbox_problem() -> str | None:
    """Why programs cannot be run in a sandbox here; None when they can."""
    try:
        require_sandbox()
    except UserError as error:
        return str(error)
    return None


@functools.cache
def _require(path: str) -> None:
    if platform.machine() not in MACHINES:
        raise UserError(f"The sandbox knows no system calls of {platform.machine()}; expected {' or '.join(MACHINES)}.")
    if find_bwrap() is None:
        raise UserError(f"Programs are graded in a sandbox, and bubblewrap (bwrap) is missing: {_INSTALL}.")
    try:
        retrying(_is_busy, ATTEMPTS, FIRST_WAIT)(_start_one)
    except SandboxFailed as error:
        raise UserError(f"Programs are graded in a sandbox, and bubblewrap fails here: {error}. {_advice()}") from error


def _start_one() -> None:
    with Sandbox("candidate", Limits(1 << 30, 10)) as sandbox:
        sandbox.ready()


def _is_busy(error: BaseException) -> bool:
    """Whether a sandbox did not start because its user has too many processes for now."""
    return isinstance(error, SandboxFailed) and os.strerror(errno.EAGAIN) in str(error)


def _advice() -> str:
    for switch, (off, command) in _SWITCHES.items():
        with contextlib.suppress(OSError):
            if Path(switch).read_text().strip() == off:
                return f"User namespaces are switched off; switch them on: {command}"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "A pod may have neither by default: give its container securityContext: {privileged: true}."
    return "In a container, allow user namespaces and mounts (docker run --privileged); else reinstall: " + _INSTALL
