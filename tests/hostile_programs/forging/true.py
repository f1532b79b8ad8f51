"""Returns true."""


def attack(x):
    return True
