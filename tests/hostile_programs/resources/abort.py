"""Aborts and hopes for a core dump."""

import os


def attack(x):
    os.abort()
