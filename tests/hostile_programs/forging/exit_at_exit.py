"""Exits with success at the end, whatever happened."""

import atexit
import os

atexit.register(os._exit, 0)


def attack(x):
    raise ValueError
