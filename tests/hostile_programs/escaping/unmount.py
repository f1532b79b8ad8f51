"""Takes mounts away, to see what is below."""

import ctypes


def attack(x):
    assert ctypes.CDLL(None).umount2(b"/", 2) == 0
    return open("@CANARY@/secret").read()
