"""Climbs out of its folder."""


def attack(x):
    return open("../" * 40 + "@CANARY@/secret").read()
