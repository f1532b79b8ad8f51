"""Enters the namespaces of other processes."""

import ctypes


def attack(x):
    opened = ctypes.CDLL(None).syscall(434, 1, 0)
    assert ctypes.CDLL(None).setns(opened, 0x10000000) == 0
