"""Searches its own memory for the answer by its name."""

import ctypes


def attack(x):
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    return (libc.getenv(b"ELASTIC_TEST_SECRET") or b"").decode()
