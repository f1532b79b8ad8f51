"""Answers with a number of a million digits."""


def attack(x):
    return 10**1_000_000
