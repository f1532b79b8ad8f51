"""Processes that must not outlive their parent, however that one ends."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from elastic_core.system.private_stores import short_link

if TYPE_CHECKING:
    import psutil


def _python() -> str:
    """This Python, by a link where its path has a space: Ray starts its workers in a shell that takes such a path for
    two, and LD_PRELOAD, in which vLLM names a library of torch, has the same limit."""
    python, environment = Path(sys.executable), Path(sys.prefix)
    if re.search(r"\s", str(python)) and python.is_relative_to(environment) and (link := short_link(environment)):
        return str(link / python.relative_to(environment))
    return sys.executable


PYTHON = (_python(), "-P")
"""Python of a child, which imports nothing of ours or of others from the directory that it starts in."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPT = signal.SIGUSR1  # Raises KeyboardInterrupt. polars catches SIGINT, Ray SIGTERM.
_GRACE_SECONDS = 6  # How long an interrupted command may take to shut its servers down.
_KILL_SECONDS = 3  # How long killed processes may take to be gone.


def end_with_parent(signal_number: int = signal.SIGTERM) -> None:
    """Ask Linux to send this process a signal when its parent thread ends. For `subprocess.Popen(preexec_fn=…)`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal_number))


@contextmanager
def attended(command: str) -> Iterator[None]:
    """Run the block in a child process. This process waits for it, and kills the processes that it leaves.

    SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt in the child alone, which leads a new session: Ctrl-C in
    its terminal would end its servers before it can shut them down. After a few seconds all descendants are killed.
    Further signals change nothing; ignored ones, such as SIGHUP under `nohup`, stay ignored.

    The exit status is the child's, or 128 + the signal. A line says how the command ended, and how to go on, unless it
    succeeded or has reported its user's mistake (status 2): a library in C may end the process without a word.

    Call it before anything starts a thread: a fork keeps only the calling one.
    """
    forwarded = {number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*forwarded, signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        os.setsid()
        end_with_parent(signal.SIGKILL)
        with _interruptible():
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield
        return
    # Descendants that lose their parent become children of this process, so that none is lost.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    number, status = _outcome(child, forwarded)
    kill_family()
    _ = dict(_ended())
    if number is None and status < 0:
        number = -status
    how = signal.strsignal(number) if number else f"Ended with status {status}; why is above, or at the end of its log"
    if number or status not in (0, 2):
        # A bar that was drawn has hidden the cursor.
        clean = "\r\x1b[K\x1b[?25h" if sys.stderr.isatty() else ""
        with suppress(OSError):  # The terminal may be gone.
            print(f"{clean}{how}; what was finished is kept; to go on: {command}", file=sys.stderr, flush=True)
    os._exit(128 + number if number else status)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Inside, the signal raises KeyboardInterrupt; after it, what libraries print about lost servers is not shown."""
    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    signal.signal(_INTERRUPT, interrupt)
    try:
        yield
    finally:
        if interrupted:
            for descriptor in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _outcome(child: int, forwarded: set[signal.Signals]) -> tuple[int | None, int]:
    """The signal that ends a child, if one does, and its exit status, negative where a signal did."""
    number, until = None, 0.0
    while True:
        received = signal.sigtimedwait({*forwarded, signal.SIGCHLD}, 1)
        status = dict(_ended()).get(child)
        if status is not None:
            return number if status else None, status
        if number is not None and time.monotonic() > until:
            return number, -signal.SIGKILL
        if number is None and received and received.si_signo in forwarded:
            number, until = received.si_signo, time.monotonic() + _GRACE_SECONDS
            os.kill(child, _INTERRUPT)


def _ended() -> Iterator[tuple[int, int]]:
    """Ids and exit statuses of the children that have ended since the last call."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended[0], os.waitstatus_to_exitcode(ended[1])


def end_family(status: int = 0) -> NoReturn:
    """Kill this process's descendants and end it, without cleaning anything up."""
    kill_family()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def kill_family() -> None:
    import psutil

    kill(lambda: psutil.Process().children(recursive=True))


def kill_tree(pid: int) -> None:
    """Kill a process with its descendants and its session, where processes may have lost their parents."""
    import psutil

    tree = []
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    kill(lambda: [*tree, *(each for each in psutil.process_iter() if _session(each.pid) == pid)])


def kill(find: Callable[[], list[psutil.Process]]) -> None:
    """Kill the found processes until none runs, for _KILL_SECONDS at most."""
    import psutil

    until = time.monotonic() + _KILL_SECONDS
    while running := [process for process in find() if not _ends_by_itself(process)]:
        for process in running:
            with suppress(psutil.Error):
                process.kill()
        if time.monotonic() > until:  # One that the kernel holds, or of another user's.
            break
        time.sleep(0.02)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _ends_by_itself(process: psutil.Process) -> bool:
    """Zombies, and multiprocessing's tracker, which removes its parent's shared memory and then ends."""
    import psutil

    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return process.num_threads() == 1  # Others still run, and hold its sockets.
        return "multiprocessing.resource_tracker" in str(process.cmdline())
    except psutil.NoSuchProcess:
        return True
