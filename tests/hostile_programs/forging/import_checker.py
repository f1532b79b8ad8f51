"""Runs the checker in its own process."""


def attack(x):
    from harness import checker

    checker.main()
