"""Reads the file that holds the answer."""


def attack(x):
    return open("@CANARY@/secret").read()
