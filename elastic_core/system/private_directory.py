"""The directory for temporary files that no other user of the machine may enter.

What torch, vLLM, verl and Gradio put beside everybody's temporary files often has a name that can be guessed, and some
of it is run or unpickled where it is read: kernels that torch compiled, what comes through sockets. Another user could
have put it there first. So everything that this project starts takes this directory for its temporary files.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from elastic_core.errors import UserError


def private_directory() -> Path:
    """The directory for temporary files where that is private; else this user's in it, the same for all processes.

    Raises:
        UserError: when something else has its name, or other users may enter it.
    """
    shared = Path(tempfile.gettempdir())
    if _is_private(shared):
        return shared
    directory = shared / f"elastic-{os.getuid()}"
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if not _is_private(directory):
        raise UserError(
            f"{directory} is not a directory that only user {os.getuid()} may enter; remove it, or set TMPDIR to "
            "another directory"
        )
    return directory


def use_private_directory(*, new_if_taken: bool = False) -> None:
    """Have this process, and those that it starts from now on, put temporary files there.

    Args:
        new_if_taken: where the name is taken, make a directory of another name, which only this process's
            descendants know: no other user can keep a command from starting.

    Raises:
        UserError: as `private_directory`.
    """
    try:
        directory = private_directory()
    except UserError:
        if not new_if_taken:
            raise
        directory = Path(tempfile.mkdtemp(prefix="elastic-"))
    os.environ["TMPDIR"] = tempfile.tempdir = str(directory)


def _is_private(directory: Path) -> bool:
    found = directory.lstat()  # Not of what a link of another user leads to.
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
