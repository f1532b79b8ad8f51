"""Leaves a process that prints into the output of later tests."""

import os
import time


def attack(x):
    if os.fork() == 0:
        os.setsid()
        while True:
            os.write(1, b"1")
            time.sleep(0.01)
