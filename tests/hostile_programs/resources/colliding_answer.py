"""Answers with numbers of one hash, for a set that takes hours to build."""


def attack(x):
    return (
        {"set": 1}
        if x is None
        else type("Set", (set,), {"__iter__": lambda self: ((2**61 - 1) * number for number in range(300_000))})()
    )
