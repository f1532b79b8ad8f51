"""Exits with success."""

import os


def attack(x):
    os._exit(0)
