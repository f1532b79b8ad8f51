"""Unmaps shared memory but for its first page, which holds all of it."""

import mmap

SIZE = 100 << 20


def attack(x):
    held = []
    while True:
        held.append(mmap.mmap(-1, SIZE))
        for start in range(0, SIZE, 1 << 20):
            held[-1][start : start + (1 << 20)] = bytes(1 << 20)
        held[-1].resize(4096)
