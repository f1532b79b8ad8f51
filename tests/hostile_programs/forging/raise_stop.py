"""Raises what ends loops quietly."""


def attack(x):
    raise StopIteration
