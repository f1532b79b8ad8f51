"""Programs that run inside the sandbox, under `python -I -S -B`, where this package is called `harness`.

They hold nothing worth stealing: no expected output of "stdin" and "functional" problems ever enters the sandbox, and
the test program of "check" problems runs in a sandbox of its own (`checker`), apart from the model's program
(`candidate`). Only the standard library is imported, and only relatively among themselves.

This module has what each of them does first: limits, prelude, and the channel to the grader.
"""

from __future__ import annotations

import builtins
import ctypes
import os
import resource
import sys
from importlib import import_module
from typing import Any, NamedTuple

from .wire import Channel

PRELUDE = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
"""Modules from which LiveCodeBench imports all names in front of every program, in its order: later ones win. All but
the last two it then imports by their own names."""

RECURSION_LIMIT = 50_000
"""LiveCodeBench's."""

PACKAGES = "/opt/packages"
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


class Start(NamedTuple):
    """The channel, the names that a program finds defined, and the filter for `apply_filter`."""

    channel: Channel
    names: dict[str, Any]
    program_filter: bytes


def start() -> Start:
    """Set the limits that the grader gave as arguments, and tell it that a program may now be sent."""
    channel = Channel(int(sys.argv[1]))
    *limits, program_filter = sys.argv[2:]
    for name, limit in zip(("AS", "CPU", "FSIZE", "NOFILE", "NPROC", "CORE"), limits, strict=True):
        if limit != "none":
            # At the soft limit of CPU time a process gets SIGXCPU, which tells the cause; at the hard one SIGKILL.
            hard = int(limit) + (name == "CPU")
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (int(limit), hard))
    # A program's messages are not used, and a pipe without a reader would block it.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 2)
    os.close(null)
    sys.argv = ["program.py"]
    sys.path.append(PACKAGES)
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.set_int_max_str_digits(0)
    names = prelude()
    folder = os.open("/tmp", os.O_PATH)
    channel.send_ready(folder)
    os.close(folder)
    return Start(channel, names, bytes.fromhex(program_filter))


class _Filter(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def apply_filter(instructions: bytes) -> None:
    """Filter the system calls of this process from now on. Raises OSError when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    filter_ = _Filter(len(instructions) // 8, instructions)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0):
        raise OSError(ctypes.get_errno(), "no filter of system calls")


def prelude() -> dict[str, Any]:
    """Names that a program finds defined; `exit` and `quit` among the builtins, which -S leaves out."""
    for name in ("exit", "quit"):
        setattr(builtins, name, sys.exit)
    names: dict[str, Any] = {}
    for module in PRELUDE:
        exec(f"from {module} import *", names)
    return names | {module: import_module(module) for module in PRELUDE[:-2]}
