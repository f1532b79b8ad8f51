"""Finding the processes that a command started."""

from contextlib import suppress

import psutil


def command_of(process: psutil.Process) -> str:
    """Its command line, or the title that it gave itself; empty when it has ended meanwhile."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def descendants(pid: int, mark: str) -> list[psutil.Process]:
    """Those that `pid` started, and they in turn, with `mark` in their command line."""
    try:
        family = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [child for child in family if mark in command_of(child)]
