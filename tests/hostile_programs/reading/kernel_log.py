"""Reads the kernel's log and keys."""

import ctypes


def attack(x):
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(1 << 16)
    assert libc.klogctl(3, buffer, 1 << 16) >= 0 or libc.syscall(250, 11, -3, buffer, 1 << 16) >= 0
    return buffer.value.decode()
