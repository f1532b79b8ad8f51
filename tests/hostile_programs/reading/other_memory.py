"""Reads the memory of its parent."""

import ctypes
import os


def attack(x):
    libc = ctypes.CDLL(None)
    assert libc.ptrace(16, os.getppid(), 0, 0) == 0
    return open(f"/proc/{os.getppid()}/mem", "rb").read(1)
