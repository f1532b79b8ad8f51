"""Replaces builtins that a checker would use."""

import builtins


def attack(x):
    builtins.all = builtins.any = builtins.isinstance = lambda *_: True
    builtins.AssertionError = builtins.Exception = SystemExit
    builtins.compile = builtins.exec = builtins.len = lambda *_: 0
