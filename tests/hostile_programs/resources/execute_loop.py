"""Replaces itself by another interpreter that never ends."""

import os


def attack(x):
    os.execve(
        "/opt/python/bin/python3.11", ["python", "-c", "while True: pass"], {"LD_LIBRARY_PATH": "/opt/python/lib"}
    )
