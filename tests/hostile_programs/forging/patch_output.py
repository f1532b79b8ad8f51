"""Replaces the streams."""

import sys


class Stream:
    def write(self, text):
        return len(text)

    def flush(self):
        pass

    def __getattr__(self, name):
        return self


def attack(x):
    sys.stdout = sys.__stdout__ = sys.stderr = Stream()
