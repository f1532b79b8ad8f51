"""Announces a message of four gigabytes."""

import os


def attack(x):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"\xff\xff\xff\xff")
        except OSError:
            pass
