"""Reaches the host of a virtual machine."""

import socket


def attack(x):
    socket.socket(socket.AF_VSOCK).connect((2, int("@PORT@")))
