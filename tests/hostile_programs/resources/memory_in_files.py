"""Keeps memory in anonymous files, which no address space counts."""

import ctypes
import os


def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    while True:
        file = libc.memfd_create(b"x", 0)
        assert file >= 0
        os.write(file, b"x" * (1 << 20))
