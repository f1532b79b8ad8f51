"""Doubles a list until memory is gone."""


def attack(x):
    block = [0]
    while True:
        block += block
