"""Becomes root."""

import os


def attack(x):
    os.setgroups([0])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
