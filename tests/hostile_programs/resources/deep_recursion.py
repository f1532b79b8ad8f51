"""Recurses without end."""


def attack(x):
    return attack(x)
