"""Prints millions of tokens for the comparison to choke on."""


def attack(x):
    print("1 " * 5_000_000)
