"""Sets the clock."""

import time


def attack(x):
    time.clock_settime(time.CLOCK_REALTIME, 0)
