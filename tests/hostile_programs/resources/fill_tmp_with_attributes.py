"""Keeps memory in attributes of files, which take no room either."""

import os


def attack(x):
    for number in range(1000):
        os.mknod(f"/tmp/{number}")
        for attribute in range(64):
            os.setxattr(f"/tmp/{number}", f"user.{attribute}", b"x" * 65536)
