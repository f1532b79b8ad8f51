"""Mounts what shows other processes."""

import ctypes
import os


def attack(x):
    os.makedirs("/tmp/proc")
    assert ctypes.CDLL(None).mount(b"proc", b"/tmp/proc", b"proc", 0, None) == 0
    return open("/tmp/proc/1/environ").read()
