"""Makes user and mount namespaces, in which it is root."""

import ctypes


def attack(x):
    assert ctypes.CDLL(None).unshare(0x10000000 | 0x00020000) == 0
    open("/tmp/inside", "w").write("root")
    return "unshared"
