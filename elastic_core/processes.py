"""Processes that must not outlive whoever started them, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import psutil

_PR_SET_PDEATHSIG = 1


def end_with_parent(signal_number: int = signal.SIGTERM) -> None:
    """Ask Linux to send this process a signal when its parent thread ends. For `subprocess.Popen(preexec_fn=…)`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal_number))


@contextmanager
def interruptible(*signals: signal.Signals) -> Iterator[None]:
    """These raise KeyboardInterrupt inside, as SIGINT does by default, so that what was started here is ended too.
    Where SIGHUP is ignored, as under `nohup`, it stays so."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    kept = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else set()
    before = {number: signal.signal(number, interrupt) for number in signals if number not in kept}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_family() -> NoReturn:
    """Kill this process's descendants and end it with status 0, whatever its threads are at: nothing is cleaned up."""
    import psutil

    while children := [child for child in psutil.Process().children(recursive=True) if not _ends_by_itself(child)]:
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _ends_by_itself(process: psutil.Process) -> bool:
    """multiprocessing's tracker removes what its parent shared once that has ended, and ends; the dead are no more."""
    import psutil

    try:
        return process.status() == psutil.STATUS_ZOMBIE or "multiprocessing.resource_tracker" in str(process.cmdline())
    except psutil.NoSuchProcess:
        return True
