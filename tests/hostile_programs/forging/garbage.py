"""Writes random bytes to every descriptor."""

import os


def attack(x):
    for descriptor in range(64):
        try:
            os.write(descriptor, os.urandom(4096))
        except OSError:
            pass
