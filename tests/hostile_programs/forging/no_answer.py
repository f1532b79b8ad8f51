"""Returns nothing."""


def attack(x):
    return None
