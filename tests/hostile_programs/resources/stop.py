"""Stops itself and its parent."""

import os
import signal


def attack(x):
    for process in (os.getppid(), os.getpid()):
        os.kill(process, signal.SIGSTOP)
