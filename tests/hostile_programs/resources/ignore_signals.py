"""Ignores all signals that can be ignored, and stays."""

import signal
import time


def attack(x):
    for number in signal.valid_signals():
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        time.sleep(1)
