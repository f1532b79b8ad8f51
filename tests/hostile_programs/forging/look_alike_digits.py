"""Prints digits of other scripts and invisible characters."""


def attack(x):
    return chr(0xFF11) + chr(0x200B) + chr(0x202E) + chr(0xFEFF) + chr(0x661)
