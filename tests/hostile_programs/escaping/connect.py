"""Connects to a service of this machine."""

import socket


def attack(x):
    socket.create_connection(("127.0.0.1", int("@PORT@")), timeout=5).send(b"out")
