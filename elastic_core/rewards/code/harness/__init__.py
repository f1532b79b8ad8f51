"""Programs that run inside the sandbox, under `python -I -S -B`, where this package is called `harness`: limits,
prelude, the channel to the grader, and values as JSON between processes that do not trust each other.

Expected outputs never enter the sandbox; the test program of "check" problems has another sandbox (`checker`) than
the model's program (`candidate`). Only the standard library is imported.

Carried: None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, deque, and numpy's scalars as
Python's. A value of a subclass (namedtuple, defaultdict, Counter, IntEnum) arrives as its base. Everything else is
`Untransportable`: instances of other classes, generators, functions, arrays.
"""

from __future__ import annotations

import builtins
import ctypes
import math
import os
import resource
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .stand_ins import name_streams

PRELUDE = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
"""Modules from which LiveCodeBench imports all names in front of every program, in its order: later ones win. All but
the last two it then imports by their own names."""

RECURSION_LIMIT = 50_000  # LiveCodeBench's

PACKAGES = "/opt/packages"
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_THP_DISABLE = 22, 2, 41
HEADER = struct.Struct("!I")
READY = b"ready"
_PLAIN = {int, float, str, bool, type(None)}  # JSON says these itself


class Channel:
    """Frames to and from the grader through pipes that are made here: four bytes of length, then the bytes.

    File descriptors go through the socket that the grader gave. It belongs to the machine's network: it tells the
    interfaces and can take names there, so it is closed before a program is loaded into this process.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._requests, grader_writes = os.pipe()
        grader_reads, self._answers = os.pipe()
        self._graders = [grader_writes, grader_reads]

    def receive(self) -> bytes:
        """A frame. Raises EOFError when the grader is gone."""
        (length,) = HEADER.unpack(self._read(HEADER.size))
        return self._read(length)

    def receive_descriptors(self) -> list[int]:
        return socket.recv_fds(self._socket, 1, 2)[1]

    def send(self, payload: bytes) -> None:
        rest = memoryview(HEADER.pack(len(payload)) + payload)
        while rest:
            rest = rest[os.write(self._answers, rest) :]

    def send_ready(self) -> None:
        """Say that a program may now be sent; with the descriptor of its folder, and the grader's ends of the pipes."""
        descriptors = [os.open("/tmp", os.O_PATH), *self._graders]
        socket.send_fds(self._socket, [READY], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def close_socket(self) -> None:
        self._socket.close()

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            part = os.read(self._requests, min(length, 1 << 20))
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
    names = "AS", "CPU", "FSIZE", "NOFILE", "NPROC", "SIGPENDING", "CORE"
    for name, limit in zip(names, limits, strict=True):
        if limit != "none":
            # At the soft limit of CPU time a process gets SIGXCPU, which tells the cause; at the hard one SIGKILL.
            hard = int(limit) + (name == "CPU")
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (int(limit), hard))
    # Unmapping most of a huge page leaves it in memory, where the limit of address space no longer counts it.
    _prctl(_PR_SET_THP_DISABLE, 1, 0)
    # A program's messages are not used, and a pipe without a reader would block it.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 2)
    os.close(null)
    sys.argv = ["program.py"]
    sys.path.append(PACKAGES)
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.set_int_max_str_digits(0)
    defined = prelude()
    channel.send_ready()
    return channel, defined, bytes.fromhex(program_filter)


class _Filter(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def apply_filter(instructions: bytes) -> None:
    """Filter the system calls of this process from now on. Raises OSError when the kernel refuses."""
    filter_ = _Filter(len(instructions) // 8, instructions)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_))


def _prctl(option: int, first: Any, second: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, first, second, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option} is refused")


def prelude() -> dict[str, Any]:
    """Names that a program finds defined; `exit` and `quit` among the builtins, which -S leaves out."""
    for name in ("exit", "quit"):
        setattr(builtins, name, sys.exit)
    name_streams()  # before `open` is taken from `io`
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
        return value if _PLAIN.issuperset(map(type, value)) else [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    name, content = _kind(value)
    return _DECODERS[name](decode(content))


def as_json(value: Any) -> Any:
    """The inverse of `encode` with the types of JSON alone: sequences as lists, dicts with keys of text.
    Untransportable for values that JSON has no type for.

    Sets and dicts are built of text alone, as its hashes cannot be foreseen: a set of a million numbers of the
    same hash would take hours. For processes that have no deadline.
    """
    if isinstance(value, list):
        return value if _PLAIN.issuperset(map(type, value)) else [as_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    name, content = _kind(value)
    if name in ("tuple", "deque"):
        return as_json(content)
    if name == "dict":
        return {_text(key): as_json(item) for key, item in content}
    raise Untransportable(f"a value of kind {name}")


def _kind(value: dict[str, Any]) -> tuple[str, Any]:
    """What `encode` made of a value that JSON cannot say: its kind, and content of the type that this kind has."""
    if len(value) != 1:
        raise Untransportable(f"{len(value)} kinds of one value")
    ((name, content),) = value.items()
    if name not in _DECODERS or not isinstance(content, str if name == "bytes" else list):
        raise Untransportable(f"a value of kind {name}")
    return name, content


def _complex(parts: list[Any]) -> complex:
    """Read two finite floats only: `complex` also reads text such as "nan", which passes by the reader of numbers."""
    if len(parts) != 2 or not all(type(part) is float and math.isfinite(part) for part in parts):
        raise Untransportable(f"a complex number of {str(parts)[:80]}")
    return complex(*parts)


def _text(key: Any) -> str:
    if type(key) is int:
        return str(key)
    if not isinstance(key, str):
        raise Untransportable(f"a key of type {type(key).__name__}")
    return key


def _items(values: Any) -> list[Any]:
    values = list(values)
    return values if _PLAIN.issuperset(map(type, values)) else [encode(value) for value in values]


_KINDS: tuple[tuple[type, str | None, Callable[[Any], Any]], ...] = (
    (bool, None, bool),
    (int, None, int.__int__),
    (float, None, float.__float__),
    (str, None, str.__str__),
    (list, None, _items),
    *((kind, kind.__name__, _items) for kind in (tuple, set, frozenset, deque)),
    (dict, "dict", lambda value: [[encode(key), encode(item)] for key, item in value.items()]),
    (bytes, "bytes", bytes.hex),
    (complex, "complex", lambda value: [value.real, value.imag]),
)

_DECODERS: dict[str, Callable[[Any], Any]] = {
    **{kind.__name__: kind for kind in (tuple, set, frozenset, deque, dict)},
    "bytes": bytes.fromhex,
    "complex": _complex,
}
