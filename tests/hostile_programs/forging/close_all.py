"""Closes every descriptor."""

import os


def attack(x):
    os.closerange(0, 4096)
