"""Programs that run inside the sandbox, under `python -I -S -B`, where this package is called `harness`.

They hold nothing worth stealing: no expected output of "stdin" and "functional" problems ever enters the sandbox, and
the test program of "check" problems runs in a sandbox of its own (`checker`), apart from the model's program
(`candidate`). Only the standard library is imported, and only relatively among themselves.

This module has what each of them does first (limits, prelude, and the channel to the grader), and what goes between
processes that do not trust each other: frames of bytes, and values in them as JSON, which are data only, no code and no
types of the program's own.
Carried: None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, deque, and numpy's scalars as
Python's. A value of a subclass (namedtuple, defaultdict, Counter, IntEnum) arrives as its base. Everything else is
`Untransportable`: instances of other classes, generators, functions, arrays.
"""

from __future__ import annotations

import array
import builtins
import ctypes
import os
import resource
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any

PRELUDE = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
"""Modules from which LiveCodeBench imports all names in front of every program, in its order: later ones win. All but
the last two it then imports by their own names."""

RECURSION_LIMIT = 50_000  # LiveCodeBench's

PACKAGES = "/opt/packages"
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
HEADER = struct.Struct("!I")
READY = b"ready"
_PLAIN = {int, float, str, bool, type(None)}  # JSON says these itself


class Channel:
    """Frames to and from the grader: four bytes of length, then so many bytes. File descriptors come with a header."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)

    def receive(self) -> tuple[bytes, list[int]]:
        """A frame and the descriptors that came with it. Raises EOFError when the grader is gone."""
        descriptors = array.array("i")
        header, ancillary, _, _ = self._socket.recvmsg(HEADER.size, socket.CMSG_SPACE(2 * descriptors.itemsize))
        for _, _, data in ancillary:
            descriptors.frombytes(data)
        (length,) = HEADER.unpack(header + self._read(HEADER.size - len(header)))
        return self._read(length), list(descriptors)

    def send(self, payload: bytes) -> None:
        self._socket.sendall(HEADER.pack(len(payload)) + payload)

    def send_ready(self, folder: int) -> None:
        """Say that a program may now be sent, and hand over the descriptor of its folder."""
        socket.send_fds(self._socket, [HEADER.pack(len(READY)) + READY], [folder])

    def close(self) -> None:
        self._socket.close()

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            part = self._socket.recv(min(length, 1 << 20))
            if not part:
                raise EOFError("the grader is gone")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def start() -> tuple[Channel, dict[str, Any], bytes]:
    """Set the limits that the grader gave as arguments, and tell it that a program may now be sent. Returns the
    channel, the names that a program finds defined, and the filter for `apply_filter`."""
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
    return channel, names, bytes.fromhex(program_filter)


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


class Untransportable(ValueError):
    """A value that cannot be carried to the other process, or bytes that carry none."""


def encode(value: Any) -> Any:
    """What JSON can say of a value: plain values and lists are themselves, all else is {kind: content}."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "shape", None) == ():
        return encode(value.item())
    for base, name, content in _KINDS:
        if isinstance(value, base):
            return content(value) if name is None else {name: content(value)}
    raise Untransportable(f"a value of type {kind.__name__}")


def decode(value: Any) -> Any:
    """The inverse of `encode`."""
    if isinstance(value, list):
        return _decode_items(value)
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise Untransportable(f"{len(value)} kinds of one value")
    ((name, content),) = value.items()
    if name not in _DECODERS:
        raise Untransportable(f"a value of kind {name}")
    return _DECODERS[name](content)


def as_json(value: Any) -> Any:
    """The inverse of `encode` with the types of JSON alone: sequences as lists, dicts with keys of text.
    Untransportable for values that JSON has no type for.

    No set or dict is built of anything but text, whose hashes cannot be foreseen: a set of a million numbers of the
    same hash would take hours. For processes that have no deadline.
    """
    if isinstance(value, list):
        return value if _PLAIN.issuperset(map(type, value)) else [as_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((name, content),) = value.items()
    if name in ("tuple", "deque"):
        return as_json(list(content))
    if name == "dict":
        return {_text(key): as_json(item) for key, item in content}
    raise Untransportable(f"a value of kind {name}")


def _text(key: Any) -> str:
    if type(key) is int:
        return str(key)
    if not isinstance(key, str):
        raise Untransportable(f"a key of type {type(key).__name__}")
    return key


def _items(values: Any) -> list[Any]:
    values = list(values)
    return values if _PLAIN.issuperset(map(type, values)) else [encode(value) for value in values]


def _decode_items(values: list[Any]) -> list[Any]:
    return values if _PLAIN.issuperset(map(type, values)) else [decode(value) for value in values]


_KINDS: tuple[tuple[type, str | None, Callable[[Any], Any]], ...] = (
    (bool, None, bool),
    (int, None, int.__int__),
    (float, None, float.__float__),
    (str, None, str.__str__),
    (list, None, _items),
    (tuple, "tuple", _items),
    (set, "set", _items),
    (frozenset, "frozenset", _items),
    (deque, "deque", _items),
    (dict, "dict", lambda value: [[encode(key), encode(item)] for key, item in value.items()]),
    (bytes, "bytes", bytes.hex),
    (complex, "complex", lambda value: [value.real, value.imag]),
)

_DECODERS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda content: tuple(_decode_items(content)),
    "set": lambda content: set(_decode_items(content)),
    "frozenset": lambda content: frozenset(_decode_items(content)),
    "deque": lambda content: deque(_decode_items(content)),
    "dict": lambda content: {decode(key): decode(item) for key, item in content},
    "bytes": bytes.fromhex,
    "complex": lambda content: complex(*content),
}
