"""Reads and writes other processes by process_vm_readv."""

import ctypes


def attack(x):
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(8)
    for process in range(1, 100):
        assert libc.process_vm_readv(process, buffer, 1, buffer, 1, 0) >= 0
