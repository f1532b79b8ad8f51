"""The system calls that programs in the sandbox may not make, as the filter that bubblewrap installs.

Reasons to deny one: it reaches another process of the sandbox (ptrace, process_vm_writev, pidfd_getfd); it takes memory
that no limit counts (memfd_create, System V memory and queues, asynchronous I/O, extended attributes); it takes what
the kernel counts by user, which other sandboxes would lack (inotify); it changes a file's mode, owner or times, and
where the grader is root and the file a device, that is the machine's; it says what the machine's file systems are
called (statmount); or it opens much of the kernel to a program that has no use for it (namespaces, mounts, sockets,
keys, io_uring, Landlock). Denied calls fail with EPERM; calls newer than this list with ENOSYS, as on an older kernel.

A second filter, for the program itself, denies new processes, as nothing else limits root's number everywhere; and
sendmsg: descriptors on their way are counted by user, and where too many are, no other sandbox could send its first.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF operations on 32-bit words
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data, in bytes
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NEW_NAMESPACES = 0x7E020000  # all CLONE_NEW… flags
_THREAD = 0x00010000  # CLONE_THREAD
_CLONE3 = 435
_NEWER = 463
"""The first call that was not reviewed: setxattrat. On x86_64 another numbering of all calls, x32, begins above it."""
_DENIED_EVERYWHERE = (
    *(425, 426, 427),  # io_uring_setup, io_uring_enter, io_uring_register
    *(428, 429, 430, 431, 432, 433, 442),  # open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr
    *(434, 438),  # pidfd_open, pidfd_getfd
    447,  # memfd_secret
    *(452, 457, 458),  # fchmodat2, statmount, listmount
    *(443, 444, 445, 446),  # quotactl_fd, landlock_create_ruleset, landlock_add_rule, landlock_restrict_self
    *(459, 460, 461),  # lsm_get_self_attr, lsm_set_self_attr, lsm_list_modules
)


_Instruction = tuple[int, int, int, int]
"""An operation, how many instructions to skip where its test holds and where not, and its operand."""


class _Machine(NamedTuple):
    audit: int
    clone: int
    forks: tuple[int, ...]
    sends_descriptors: tuple[int, ...]
    denied: tuple[int, ...]
    superseded: tuple[int, ...]  # calls that only the older of the machines have, beside those that do the same


_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        clone=56,
        forks=(57, 58),  # fork, vfork
        sends_descriptors=(46, 307),  # sendmsg, sendmmsg
        denied=(
            *(101, 310, 311, 312),  # ptrace, process_vm_readv, process_vm_writev, kcmp
            *(272, 308, 165, 166, 155, 161),  # unshare, setns, mount, umount2, pivot_root, chroot
            *(248, 249, 250),  # add_key, request_key, keyctl
            *(321, 298, 323),  # bpf, perf_event_open, userfaultfd
            *(319, 29, 30, 64, 68, 240),  # memfd_create, shmget, shmat, semget, msgget, mq_open
            *(41, 303, 304, 300),  # socket, name_to_handle_at, open_by_handle_at, fanotify_init
            *(246, 320, 175, 313),  # kexec_load, kexec_file_load, init_module, finit_module
            *(135, 163, 167, 169, 179, 103),  # personality, acct, swapon, reboot, quotactl, syslog
            *(164, 227, 159, 305),  # settimeofday, clock_settime, adjtimex, clock_adjtime
            *(206, 294),  # io_setup, inotify_init1
            *(91, 268, 93, 260, 280),  # fchmod, fchmodat, fchown, fchownat, utimensat
            *(188, 189, 190, 197, 198, 199),  # setxattr, lsetxattr, fsetxattr, removexattr, lremovexattr, fremovexattr
        ),
        superseded=(90, 92, 94, 132, 235, 261, 253),  # chmod, chown, lchown, utime, utimes, futimesat, inotify_init
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        clone=220,
        forks=(),
        sends_descriptors=(211, 269),
        denied=(
            *(117, 270, 271, 272),
            *(97, 268, 40, 39, 41, 51),
            *(217, 218, 219),
            *(280, 241, 282),
            *(279, 194, 196, 190, 186, 180),
            *(198, 264, 265, 262),
            *(104, 294, 105, 273),
            *(92, 89, 224, 142, 60, 116),
            *(170, 112, 171, 266),
            *(0, 26),
            *(52, 53, 55, 54, 88),
            *(5, 6, 7, 14, 15, 16),
        ),  # the same calls in the same order
        superseded=(),
    ),
}

MACHINES = tuple(_MACHINES)  # machines for which there is a filter


def system_call_filter(machine: str | None = None) -> bytes:
    """The filter as bubblewrap's --seccomp reads it: an array of `struct sock_filter`, for this machine or one of
    `MACHINES`. KeyError for another."""
    numbers = _MACHINES[machine or platform.machine()]
    first = [
        (_AT_LEAST, 0, 1, _NEWER),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        # The C library falls back to clone, whose flags a filter can read.
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    denied = (*numbers.denied, *numbers.superseded, *_DENIED_EVERYWHERE)
    return _filter(numbers, first, denied, (_ANY_BIT, 0, 1, _NEW_NAMESPACES))


def program_filter(machine: str | None = None) -> bytes:
    """A further filter, under which a process starts threads and no processes, and sends no descriptors."""
    numbers = _MACHINES[machine or platform.machine()]
    return _filter(numbers, [], (*numbers.forks, *numbers.sends_descriptors), (_ANY_BIT, 1, 0, _THREAD))


def _filter(
    numbers: _Machine, first: list[_Instruction], denied: tuple[int, ...], clone_is_denied: _Instruction
) -> bytes:
    """Kill what calls by another architecture's numbers; then go by the call's number, and for clone by its flags."""
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, numbers.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        *first,
    ]
    for number in denied:
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    program += [
        (_EQUAL, 0, 3, numbers.clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        clone_is_denied,
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
