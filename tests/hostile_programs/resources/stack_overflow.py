"""Lifts the recursion limit and overflows the stack."""

import sys


def attack(x):
    sys.setrecursionlimit(1 << 30)

    class Deep:
        def __repr__(self):
            return repr(self)

    repr(Deep())
