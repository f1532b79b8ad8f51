"""Reads through a symbolic and a hard link."""

import os


def attack(x):
    os.symlink("@CANARY@/secret", "/tmp/link")
    try:
        return open("/tmp/link").read()
    except OSError:
        os.link("@CANARY@/secret", "/tmp/hard")
        return open("/tmp/hard").read()
