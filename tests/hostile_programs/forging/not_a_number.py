"""Returns what is unequal to itself."""


def attack(x):
    return float("nan")
