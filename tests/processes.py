"""Running programs in processes of their own, and finding those that a command started."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from contextlib import suppress

import psutil


def python(
    code: str, *arguments: object, status: int | None = 0, given: str = "", environment: Mapping[str, str] = os.environ
) -> "subprocess.CompletedProcess[str]":
    """Run a program in an interpreter of its own.

    Args:
        status: that it has to end with; None for any.
        given: its input.
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *map(str, arguments)]
    ended = subprocess.run(
        command, input=given, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert status in (None, ended.returncode), ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended


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
