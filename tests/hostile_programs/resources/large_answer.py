"""Answers with a hundred megabytes."""


def attack(x):
    return "x" * 100_000_000
