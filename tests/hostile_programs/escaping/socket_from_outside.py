"""Asks a socket from outside for the machine's interfaces, and takes a name in its network."""

import fcntl
import socket


def attack(x):
    for number in range(3, 64):
        try:
            found = socket.socket(fileno=number)
        except OSError:
            continue
        fcntl.ioctl(found, 0x8912, bytearray(40))  # SIOCGIFCONF
        found.bind("\0elastic-taken")
