"""Processes that must not outlive whoever started them, even when that one is killed with SIGKILL."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(signal_number: int = signal.SIGTERM) -> None:
    """Ask Linux to send this process a signal when its parent thread ends. For `subprocess.Popen(preexec_fn=…)`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal_number))
