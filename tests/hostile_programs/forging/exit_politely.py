"""Exits with success by an exception."""


def attack(x):
    raise SystemExit(0)
