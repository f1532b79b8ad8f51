"""Prints ten gigabytes."""

import os


def attack(x):
    for _ in range(10_000):
        os.write(1, b"x" * (1 << 20))
