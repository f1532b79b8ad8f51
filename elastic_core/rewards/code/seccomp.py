"""The system calls that programs in the sandbox may not make, as the filter that bubblewrap installs.

Denied are calls that reach other processes of the sandbox; take memory that no limit counts, such as pages that a pipe
or socket holds after the program has unmapped them; take what the kernel counts by user, which other sandboxes would
lack; change mode, owner or times of a file; tell names of file systems or interfaces; or open much of the kernel
without a use for programs. Denied calls fail with EPERM; calls newer than this list with ENOSYS, as on an older kernel.

A second filter, for the program, denies new processes; sendmsg, as descriptors on their way are counted by user; and
prctl, which could undo the settings of the harness.
"""

from __future__ import annotations

import errno
import platform
import struct
from itertools import chain
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
_DENIED: tuple[_Calls, ...] = (
    ((101, 310, 311, 312), (117, 270, 271, 272)),  # ptrace, process_vm_readv, process_vm_writev, kcmp
    ((272, 308, 165, 166, 155, 161), (97, 268, 40, 39, 41, 51)),  # unshare, setns, mount, umount2, pivot_root, chroot
    ((248, 249, 250), (217, 218, 219)),  # add_key, request_key, keyctl
    ((321, 298, 323), (280, 241, 282)),  # bpf, perf_event_open, userfaultfd
    (
        (319, 29, 30, 64, 68, 240),
        (279, 194, 196, 190, 186, 180),
    ),  # memfd_create, shmget, shmat, semget, msgget, mq_open
    ((41, 303, 304, 300), (198, 264, 265, 262)),  # socket, name_to_handle_at, open_by_handle_at, fanotify_init
    ((42, 43, 288, 49, 50, 54), (203, 202, 242, 200, 201, 208)),  # connect, accept, accept4, bind, listen, setsockopt
    ((40, 275, 276, 278), (71, 76, 77, 75)),  # sendfile, splice, tee, vmsplice
    ((141, 142, 144, 314), (140, 118, 119, 274)),  # setpriority, sched_setparam, sched_setscheduler, sched_setattr
    ((203, 251, 256), (122, 30, 238)),  # sched_setaffinity, ioprio_set, migrate_pages
    ((279, 274), (239, 100)),  # move_pages, get_robust_list
    ((317, 162, 306), (277, 81, 267)),  # seccomp, sync, syncfs
    ((246, 320, 175, 313), (104, 294, 105, 273)),  # kexec_load, kexec_file_load, init_module, finit_module
    (
        (135, 163, 167, 169, 179, 103),
        (92, 89, 224, 142, 60, 116),
    ),  # personality, acct, swapon, reboot, quotactl, syslog
    ((164, 227, 159, 305), (170, 112, 171, 266)),  # settimeofday, clock_settime, adjtimex, clock_adjtime
    ((206, 294), (0, 26)),  # io_setup, inotify_init1
    ((91, 268, 93, 260, 280), (52, 53, 55, 54, 88)),  # fchmod, fchmodat, fchown, fchownat, utimensat
    ((188, 189, 190), (5, 6, 7)),  # setxattr, lsetxattr, fsetxattr
    ((197, 198, 199), (14, 15, 16)),  # removexattr, lremovexattr, fremovexattr
    # What only x86_64 has: chmod, chown, lchown, utime, utimes, futimesat, inotify_init, modify_ldt.
    ((90, 92, 94, 132, 235, 261, 253, 154), ()),
    ((425, 426, 427),) * 2,  # io_uring_setup, io_uring_enter, io_uring_register
    ((428, 429, 430, 431),) * 2,  # open_tree, move_mount, fsopen, fsconfig
    ((432, 433, 442),) * 2,  # fsmount, fspick, mount_setattr
    ((434, 438, 424, 440, 448),) * 2,  # pidfd_open, pidfd_getfd, pidfd_send_signal, process_madvise, process_mrelease
    ((447, 452, 457, 458, 443),) * 2,  # memfd_secret, fchmodat2, statmount, listmount, quotactl_fd
    ((444, 445, 446),) * 2,  # landlock_create_ruleset, landlock_add_rule, landlock_restrict_self
    ((459, 460, 461),) * 2,  # lsm_get_self_attr, lsm_set_self_attr, lsm_list_modules
)

_Instruction = tuple[int, int, int, int]
"""An operation, how many instructions to skip where its test holds and where not, and its operand."""


def system_call_filter(machine: str | None = None) -> bytes:
    """The filter as bubblewrap's --seccomp reads it: an array of `struct sock_filter`, for this machine or one of
    `MACHINES`. ValueError for another."""
    first = [
        (_AT_LEAST, 0, 1, _NEWER),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        # The C library falls back to clone, whose flags a filter can read.
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    return _filter(machine, first, _DENIED, _ARGUMENTS_ALLOWED)


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
