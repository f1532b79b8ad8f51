"""Connects by system calls of its own."""

import ctypes


def attack(x):
    libc = ctypes.CDLL(None)
    address = bytes([2, 0]) + (int("@PORT@")).to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
    made = libc.socket(2, 1, 0)
    assert libc.connect(made, address, 16) == 0
    libc.write(made, b"out", 3)
