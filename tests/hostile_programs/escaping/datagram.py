"""Sends a datagram."""

import socket


def attack(x):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"out", ("127.0.0.1", int("@PORT@")))
