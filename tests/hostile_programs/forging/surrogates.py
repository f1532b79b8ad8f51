"""Answers with text that has no encoding."""


def attack(x):
    return chr(0xD800) + chr(0xDFFF)
