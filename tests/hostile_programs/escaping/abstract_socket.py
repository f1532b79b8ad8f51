"""Connects to a socket that has no file."""

import socket


def attack(x):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(chr(0) + "@SOCKET@")
    connection.send(b"out")
