"""Takes its parent's processor time and memory away."""

import os
import resource


def attack(x):
    resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))
    resource.prlimit(os.getppid(), resource.RLIMIT_AS, (1, 1))
