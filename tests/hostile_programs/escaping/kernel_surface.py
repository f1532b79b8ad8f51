"""Loads programs and modules into the kernel."""

import ctypes


def attack(x):
    libc = ctypes.CDLL(None)
    attempts = [(321, 5, 0, 0), (298, 0, 0, -1), (425, 1, 0), (323, 0), (175, 0, 0, 0), (246, 0, 0, 0)]
    assert any(libc.syscall(*attempt) >= 0 for attempt in attempts)
