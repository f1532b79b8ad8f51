"""Stays in one call of C code."""


def attack(x):
    return 7 ** (7**12) % 10
