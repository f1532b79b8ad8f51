"""Prints its input."""

import sys


def attack(x):
    return sys.stdin.read()
