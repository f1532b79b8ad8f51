"""Never ends, using no processor."""

import time


def attack(x):
    time.sleep(100_000)
