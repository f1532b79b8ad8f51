"""Makes a file of a terabyte."""

import os


def attack(x):
    with open("/tmp/huge", "wb") as file:
        os.truncate(file.fileno(), 1 << 40)
