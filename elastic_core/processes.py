"""Processes that must not outlive whoever started them, even when that one is killed with SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import psutil

_PR_SET_PDEATHSIG = 1


def end_with_parent(signal_number: int = signal.SIGTERM) -> None:
    """Ask Linux to send this process a signal when its parent thread ends. For `subprocess.Popen(preexec_fn=…)`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal_number))


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
