"""Puts each descriptor in the place of others."""

import os


def attack(x):
    for source in range(64):
        for target in range(64):
            try:
                os.dup2(source, target)
            except OSError:
                pass
