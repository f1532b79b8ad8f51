"""Raises what a test program may expect."""


def attack(x):
    raise AssertionError("correct")
