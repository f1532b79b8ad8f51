"""Removes the folder in which it works."""

import os


def attack(x):
    os.mkdir("/tmp/gone")
    os.chdir("/tmp/gone")
    os.rmdir("/tmp/gone")
    return os.getcwd()
