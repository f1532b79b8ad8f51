"""Makes system calls by the numbers of another architecture."""

import ctypes


def attack(x):
    assert ctypes.CDLL(None).syscall(0x40000000 | 101, 0, 0, 0, 0) == 0
