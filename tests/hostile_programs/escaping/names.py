"""Asks for names on the network."""

import socket


def attack(x):
    return socket.gethostbyname("example.com")
