"""Connects to this machine by its other addresses."""

import socket


def attack(x):
    for address in ("localhost", "0.0.0.0", "::1", "10.0.0.1", "169.254.169.254"):
        try:
            socket.create_connection((address, int("@PORT@")), timeout=1).send(b"out")
        except OSError:
            pass
