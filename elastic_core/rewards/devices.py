"""The device that programs get."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from elastic_core.rewards.slots import own_directory

_NULL = os.makedev(1, 3)


def null_device() -> Path:
    """A null device that is not the machine's own, where this user may make one; the machine's elsewhere.

    In a sandbox that root starts, the user is root, and owns every device that is shown to it. Other users own none of
    the machine's devices, and can make none.

    Raises:
        UserError: as `own_directory`.
    """
    if os.getuid() == 0:
        device = own_directory() / "null"
        # A container may not make devices, and a file system may be mounted without any.
        with suppress(OSError):
            with suppress(FileExistsError):
                os.mknod(device, stat.S_IFCHR | 0o600, _NULL)
            descriptor = os.open(device, os.O_RDWR | os.O_NOFOLLOW)
            is_null = os.fstat(descriptor).st_rdev == _NULL
            os.close(descriptor)
            if is_null:
                return device
    return Path(os.devnull)
