"""Answers with the variable that holds the answer."""

import os


def attack(x):
    return os.environ.get("ELASTIC_TEST_SECRET") or os.environb.get(b"ELASTIC_TEST_SECRET")
