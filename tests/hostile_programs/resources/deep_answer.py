"""Answers with a list nested a hundred thousand times."""


def attack(x):
    nested = []
    for _ in range(100_000):
        nested = [nested]
    return nested
