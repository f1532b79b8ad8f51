"""Starts threads without end while it answers byte by byte."""

import _thread
import os
import stat
import struct
import threading
import time


def attack(x):
    threading.stack_size(32768)
    channel = next(number for number in range(3, 64) if is_pipe(number))
    os.write(channel, struct.pack("!I", 5 << 20))
    held = _thread.allocate_lock()
    held.acquire()
    for _ in range(400):
        _thread.start_new_thread(held.acquire, ())
        os.write(channel, b" ")
    while True:
        os.write(channel, b" ")
        time.sleep(0.005)


def is_pipe(number):
    try:
        return stat.S_ISFIFO(os.fstat(number).st_mode) and os.write(number, b"") == 0
    except OSError:
        return False
