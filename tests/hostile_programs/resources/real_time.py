"""Asks for real-time priority and loops."""

import os


def attack(x):
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
        os.nice(-20)
    except OSError:
        pass
    while True:
        pass
