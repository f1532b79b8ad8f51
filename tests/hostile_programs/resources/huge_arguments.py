"""Executes itself with huge arguments."""

import os


def attack(x):
    os.execv("/opt/python/bin/python3.11", ["python"] + ["x" * 100_000] * 1000)
