"""Leaves a process in a session of its own."""

import os
import time


def attack(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 64)
            while True:
                time.sleep(0.1)
        os._exit(0)
