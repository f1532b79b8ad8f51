"""Returns what makes comparisons ask the other side."""


def attack(x):
    return NotImplemented
