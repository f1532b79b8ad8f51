"""Mounts by the newer system calls."""

import ctypes


def attack(x):
    assert ctypes.CDLL(None).syscall(428, -100, b"/", 1) >= 0 or ctypes.CDLL(None).syscall(430, b"proc", 0) >= 0
