"""Makes namespaces by clone."""

import ctypes


def attack(x):
    libc = ctypes.CDLL(None)
    number = 56 if __import__("platform").machine() == "x86_64" else 220
    child = libc.syscall(number, 0x10000000 | 0x20000000 | 17, 0, 0, 0, 0)
    assert child >= 0
    return "cloned"
