"""The system calls that programs in the sandbox may not make, as the filter that bubblewrap installs.

Denied are calls that reach other processes of the sandbox; take memory that no limit counts, such as pages that a pipe
or socket holds after the program has unmapped them; take resources that the kernel counts by user, and other
sandboxes would lack; change mode, owner or times of a file; tell names of file systems or interfaces; or open much of
the kernel without a use for programs. Denied calls fail with EPERM; calls newer than this list with ENOSYS, as on an
older kernel.

A second filter, for the program, denies new processes; sendmsg, as descriptors on their way are counted by user; and
prctl, which could undo the settings of the harness.
"""

from __future__ import annotations

import errno
import platform
import struct
from itertools import chain
from pathlib import Path
from typing import NamedTuple

MACHINES = "x86_64", "aarch64"
"""Machines for which there is a filter. Every call has a number on each, in this order."""

_AUDIT = 0xC000003E, 0xC00000B7
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # BPF operations on 32-bit words
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data, in bytes; an argument has eight
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NEW_NAMESPACES = 0x7E020000  # all CLONE_NEW… flags
_THREAD = 0x00010400  # CLONE_THREAD and CLONE_FILES: without the latter, each thread could have all descriptors again
_CLONE, _CLONE3 = (56, 220), 435
_NEWER = 463
"""The first call that was not reviewed: setxattrat. On x86_64 another numbering of all calls, x32, begins above it."""


class _Argument(NamedTuple):
    """An argument of a call, by its number from 0, and the values that it may have in the bits of a mask."""

    call: tuple[int, int]
    number: int
    allowed: tuple[int, ...]
    mask: int = 0xFFFFFFFF


_ARGUMENTS_ALLOWED = (
    _Argument(_CLONE, 0, (0,), _NEW_NAMESPACES),
    _Argument((302, 261), 0, (0,)),  # prlimit64: limits of the calling process only
    _Argument((436, 436), 2, (0, 4)),  # close_range, without CLOSE_RANGE_UNSHARE: see `_THREAD`
    # mmap, without MAP_SHARED and MAP_ANONYMOUS together: pages that are unmapped stay in memory until all are.
    _Argument((9, 222), 3, (0, 0x01, 0x20), 0x21),
    # socketpair of AF_UNIX: any other would be made first, its module loaded, and then refused.
    _Argument((53, 199), 0, (1,)),
    # fcntl: F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC; no locks, leases, owners or sizes of pipes.
    _Argument((72, 25), 1, (0, 1, 2, 3, 4, 1030)),
    # ioctl: TCGETS, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
    _Argument((16, 29), 1, (0x5401, 0x541B, 0x5421, 0x5450, 0x5451)),
)
_THREADS_ONLY = _Argument(_CLONE, 0, (_THREAD,), _THREAD)

_Calls = tuple[tuple[int, ...], tuple[int, ...]]
_FORKS: _Calls = (57, 58), ()  # fork, vfork
_FROM_PROGRAMS: _Calls = (46, 307, 157), (211, 269, 167)  # sendmsg, sendmmsg, prctl
_TABLE = [line.split() for line in Path(__file__).with_name("denied.txt").read_text().splitlines()[1:]]
_DENIED: _Calls = (tuple(int(row[1]) for row in _TABLE), tuple(int(row[2]) for row in _TABLE if row[2] != "-"))

_Instruction = tuple[int, int, int, int]
"""An operation, how many instructions to skip where its test holds and where not, and its operand."""


def system_call_filter(machine: str | None = None) -> bytes:
    """The filter as bubblewrap's --seccomp reads it: an array of `struct sock_filter`, for this machine or one of
    `MACHINES`. ValueError for another."""
    first = [
        (_AT_LEAST, 0, 1, _NEWER),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        # The C library falls back to clone; a filter can read its flags.
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    return _filter(machine, first, (_DENIED,), _ARGUMENTS_ALLOWED)


def program_filter(machine: str | None = None) -> bytes:
    """A further filter, under which a process starts threads and no processes, and sends no descriptors."""
    return _filter(machine, [], (_FORKS, _FROM_PROGRAMS), (_THREADS_ONLY,))


def _filter(
    machine: str | None, first: list[_Instruction], denied: tuple[_Calls, ...], arguments: tuple[_Argument, ...]
) -> bytes:
    """Kill what calls by another architecture's numbers; then go by the call's number, and by an argument of some."""
    place = MACHINES.index(machine or platform.machine())
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT[place]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        *first,
    ]
    for number in chain.from_iterable(calls[place] for calls in denied):
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    for call, number, allowed, mask in arguments:
        count = len(allowed)
        program += [(_EQUAL, 0, count + 4, call[place]), (_LOAD, 0, 0, _ARGUMENTS + 8 * number)]
        program += [(_AND, 0, 0, mask), *((_EQUAL, count - n, 0, value) for n, value in enumerate(allowed))]
        program += [(_RETURN, 0, 0, _ERROR | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
