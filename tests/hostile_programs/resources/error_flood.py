"""Writes ten gigabytes of messages."""

import os


def attack(x):
    while True:
        os.write(2, b"x" * (1 << 20))
