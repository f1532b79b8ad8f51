"""What the walls of the sandbox are made of: devices, system calls, the kernel's memory, and what is to be seen.

All of it holds for a grader that is root and for one that is not.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_core.rewards import code as runners
from elastic_core.rewards.code import bubblewrap, sandbox
from elastic_core.rewards.code.harness import READY
from elastic_core.rewards.truth import CodeTest, CodeTruth, GradeStatus
from tests.hostile_programs import HOSTILE

ROOT = Path(__file__).parents[2]
ORDINARY = 12345
"""A user that a machine is unlikely to have."""


def printed(program: str) -> list[str]:
    """Lines that a program prints."""
    with sandbox.Sandbox("stdin", bubblewrap.Limits(1 << 30, 10)) as running:
        running.ready()
        running.send(program.encode(), running.now() + 10)
        return runners._print(running, CodeTest("", ""), running.now() + 10).decode().splitlines()


def status_of(name: str) -> GradeStatus:
    program = next(hostile.program for hostile in HOSTILE if hostile.name == name)
    return runners.run(
        program + "def solve(x):\n    return attack(x)\n",
        CodeTruth("functional", (CodeTest("1", "1"),), method="solve"),
    )


CHANGES = """
import os
open("/tmp/own", "w").close()
by_path = dict(follow_symlinks=False)
changes = {
    "chmod": lambda file: os.chmod(file, 0o600),
    "chown": lambda file: os.chown(file, 1000, 1000),
    "lchown": lambda file: os.chown(file, 1000, 1000, **by_path),
    "utime": lambda file: os.utime(file, (0, 0)),
    "lutime": lambda file: os.utime(file, (0, 0), **by_path),
    "setxattr": lambda file: os.setxattr(file, "user.x", b"x"),
    "lsetxattr": lambda file: os.setxattr(file, "user.x", b"x", **by_path),
    "removexattr": lambda file: os.removexattr(file, "user.x"),
    "lremovexattr": lambda file: os.removexattr(file, "user.x", **by_path),
}
for name, change in changes.items():
    for file in ("/dev/null", "/tmp/own") if name[0] == "l" else ("/dev/null", "/tmp/own", 0, 1, 2):
        try:
            change(file)
        except PermissionError:
            continue
        except OSError as error:
            print(name, file, error)
        else:
            print(name, file, "changed")
print("all tried")
"""


def test_no_program_changes_modes_owners_times_or_attributes() -> None:
    before = Path(os.devnull).stat()
    assert printed(CHANGES) == ["all tried"]
    after = Path(os.devnull).stat()
    assert [after.st_mode, after.st_uid, after.st_mtime] == [before.st_mode, before.st_uid, before.st_mtime]


NAMES = (
    "io_setup", "inotify_init1", "ptrace", "kcmp", "process_vm_readv", "process_vm_writev", "setpriority",
    "sched_setparam", "sched_setscheduler", "sched_setattr", "sched_setaffinity", "ioprio_set", "migrate_pages",
    "move_pages", "get_robust_list", "seccomp", "sync", "syncfs", "unshare", "connect", "accept", "accept4",
    "bind", "listen", "setsockopt", "sendfile", "splice", "tee", "vmsplice", "prctl",
)  # fmt: skip
NUMBERS = {
    "x86_64": (206, 294, 101, 312, 310, 311, 141, 142, 144, 314, 203, 251, 256, 279, 274, 317, 162, 306, 272,
               42, 43, 288, 49, 50, 54, 40, 275, 276, 278, 157),
    "aarch64": (0, 26, 117, 272, 270, 271, 140, 118, 119, 274, 122, 30, 238, 239, 100, 277, 81, 267, 97,
                203, 202, 242, 200, 201, 208, 71, 76, 77, 75, 167),
}  # fmt: skip
EVERYWHERE = {"fchmodat2": 452, "statmount": 457, "listmount": 458, "landlock_create_ruleset": 444, "quotactl_fd": 443,
              "setxattrat": 463, "removexattrat": 466, "open_tree_attr": 467, "file_setattr": 469, "of the future": 600,
              "pidfd_send_signal": 424, "pidfd_open": 434, "pidfd_getfd": 438, "process_madvise": 440,
              "process_mrelease": 448}  # fmt: skip
REFUSED = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for name, number in CALLS.items():
    ctypes.set_errno(0)
    answer = libc.syscall(number, None, None, 1, None, 0)
    if answer != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        print(name, answer, errno.errorcode.get(ctypes.get_errno()))
print("all tried")
"""


def test_calls_that_no_program_needs_are_refused() -> None:
    calls = dict(zip(NAMES, NUMBERS[platform.machine()], strict=True)) | EVERYWHERE
    assert printed(REFUSED.replace("CALLS", str(calls))) == ["all tried"]


ARGUMENTS = """
import ctypes, errno, fcntl, mmap, os, resource, socket
libc = ctypes.CDLL(None, use_errno=True)
def close_range(flags):
    if libc.syscall(436, 60, 60, flags):
        raise OSError(ctypes.get_errno(), "")
def thread(flags):
    if libc.syscall(CLONE, flags, None, None, None, None) < 0:
        raise OSError(ctypes.get_errno(), "")
file, (near, far) = os.open("/tmp/file", os.O_RDWR | os.O_CREAT), socket.socketpair()
os.ftruncate(file, 1)
may = {
    "own limits": lambda: resource.prlimit(0, resource.RLIMIT_CORE, (0, 0)),
    "close on exec": lambda: close_range(4),
    "private memory": lambda: mmap.mmap(-1, 1, mmap.MAP_PRIVATE),
    "shared file": lambda: mmap.mmap(file, 1),
    "flags": lambda: fcntl.fcntl(near, fcntl.F_SETFL, os.O_NONBLOCK),
    "non-blocking": lambda: far.setblocking(False),
    "pair of datagrams": lambda: socket.socketpair(type=socket.SOCK_DGRAM),
    "unread bytes": lambda: fcntl.ioctl(near, 0x541B, bytes(4)),
}
may_not = {
    "parent's limits": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NPROC, (0, 0)),
    "init's limits": lambda: resource.prlimit(1, resource.RLIMIT_NPROC),
    "another's table of descriptors": lambda: close_range(2),
    "both": lambda: close_range(6),
    "thread with descriptors of its own": lambda: thread(0x10900),
    "process": lambda: thread(0x11),
    "shared memory without a file": lambda: mmap.mmap(-1, 1),
    "the same, validated": lambda: mmap.mmap(-1, 1, 0x23),
    "record lock": lambda: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1),
    "lock of an open file": lambda: fcntl.fcntl(file, 37, bytes(32)),
    "lease": lambda: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "owner of a signal": lambda: fcntl.fcntl(near, fcntl.F_SETOWN, os.getppid()),
    "large pipe": lambda: fcntl.fcntl(os.pipe()[0], 1031, 1 << 20),
    "pair of the network": lambda: socket.socketpair(socket.AF_INET),
    "pair to the kernel": lambda: socket.socketpair(socket.AF_NETLINK, socket.SOCK_DGRAM),
    "pair to the hypervisor": lambda: socket.socketpair(socket.AF_VSOCK),
    "interfaces": lambda: fcntl.ioctl(near, 0x8912, bytes(40)),
    "flags of an inode": lambda: fcntl.ioctl(file, 0x80086601, bytes(8)),
}
for name, attempt in {**may, **may_not}.items():
    try:
        attempt()
        done = True
    except OSError as error:
        done = error.errno != errno.EPERM
    if done is not (name in may):
        print(name)
print("all tried")
"""


def test_calls_are_refused_by_what_they_would_do() -> None:
    clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    assert printed(ARGUMENTS.replace("CLONE", str(clone))) == ["all tried"]


HELD = """
import os, socket
held, total = [], 0
def fill(descriptor, chunk):
    global total
    os.set_blocking(descriptor, False)
    try:
        while True:
            total += os.write(descriptor, chunk)
    except OSError:
        pass
try:
    while True:
        held += MAKE
        for end in held[-2:]:
            for size in (1 << 16, 1):
                fill(end if isinstance(end, int) else end.fileno(), bytes(size))
except OSError:
    print(len(held), total >> 20)
"""


@pytest.mark.parametrize("make", ["socket.socketpair()", "os.pipe()"])
def test_what_pairs_of_sockets_and_pipes_hold_is_bounded(make: str) -> None:
    """By the number of descriptors, as none can be made larger. asyncio takes a pair of sockets."""
    number, mebibytes = map(int, printed(HELD.replace("MAKE", make))[0].split())
    setting = Path("/proc/sys/net/core/wmem_default")  # a container does not always show it
    default = int(setting.read_text()) if setting.exists() else 1 << 18
    assert number < bubblewrap._MAX_OPEN_FILES
    assert mebibytes << 20 <= bubblewrap._MAX_OPEN_FILES * max(default, 1 << 16)


KEPT = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
huge, block = 2 << 20, mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE)
block.madvise(14)  # MADV_HUGEPAGE
for at in range(0, len(block), huge):
    block[at] = 1
import resource
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def test_memory_is_taken_in_small_pages() -> None:
    """Of a huge page most can be unmapped, and is not counted any more, while all of it is held."""
    assert int(printed(KEPT)[0]) < 64


OPEN = """
import os, stat
def kind(number):
    try:
        return stat.S_IFMT(os.fstat(number).st_mode)
    except OSError:
        return 0
def solve(x):
    kinds = [kind(number) for number in range(4096)]
    return [kinds.count(stat.S_IFSOCK), kinds.count(stat.S_IFIFO), kinds[:3] == [stat.S_IFCHR] * 3, kinds.count(0)]
"""


def test_no_descriptor_in_a_program_is_of_the_machine() -> None:
    """A socket would be of the machine's network: its interfaces, and names of its sockets. Pipes are of nothing."""
    truth = CodeTruth("functional", (CodeTest("1", str([0, 2, True, 4096 - 5]).replace("T", "t")),), method="solve")
    assert runners.run(OPEN, truth) is GradeStatus.CORRECT


AGAINST_PARENT = """
import ctypes, os, resource, signal
print(1)
def attempt(call, *arguments):
    try:
        call(*arguments)
    except (OSError, ValueError):
        pass
for number in range(16):
    attempt(resource.prlimit, os.getppid(), number, (0, 0))
    attempt(resource.prlimit, 1, number, (0, 0))
for who in (os.getppid(), 1):
    for policy in range(8):
        attempt(os.sched_setscheduler, who, policy, os.sched_param(0))
    attempt(os.sched_setaffinity, who, {0})
    attempt(os.setpriority, os.PRIO_PROCESS, who, 19)
    attempt(os.setpgid, who, 0)
    for name in ("SIGURG", "SIGCHLD", "SIGCONT", "SIGWINCH"):
        attempt(os.kill, who, getattr(signal, name))
attempt(os.setpriority, os.PRIO_USER, 0, 19)
attempt(resource.setrlimit, resource.RLIMIT_NPROC, (0, 0))
"""


PROCESSES_OF_PARENT = """
import os, resource
print(1)
try:
    resource.prlimit(os.getppid(), resource.RLIMIT_NPROC, (0, 0))
except PermissionError:
    pass
"""


@pytest.mark.parametrize("program", [PROCESSES_OF_PARENT, AGAINST_PARENT], ids=["processes", "all"])
def test_no_program_makes_the_sandbox_fail_for_its_next_test(program: str) -> None:
    """That would be laid to the machine and end the run."""
    truth = CodeTruth("stdin", (CodeTest("", "1"),) * 3)
    assert runners.run(program, truth) is GradeStatus.CORRECT


SENDS = """
import array, errno, os, socket
near, far = socket.socketpair()
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]
try:
    near.sendmsg([b"x"], rights)
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_no_program_sends_descriptors() -> None:
    """The kernel counts those on their way by user: with too many, the user's other sandboxes could not start."""
    assert printed(SENDS) == ["EPERM"]


@pytest.mark.skipif(os.getuid() != 0, reason="others own none of the machine's devices")
def test_roots_device_is_not_the_machines() -> None:
    seen = "import os\nprint([(s.st_dev, s.st_ino, s.st_rdev) for s in [os.stat('/dev/null')]])"
    machines = Path(os.devnull).stat()
    given = bubblewrap.null_device()
    if given == Path(os.devnull):
        pytest.skip("no device can be made here")
    assert printed(seen) == [str([(given.stat().st_dev, given.stat().st_ino, machines.st_rdev)])]
    assert not os.path.samestat(given.stat(), machines)
    # The streams that a process of the sandbox is born with are of the same device.
    with sandbox.Sandbox("candidate", bubblewrap.Limits(1 << 30, 10)) as running:
        running.ready()
        streams = [Path(f"/proc/{running._process.pid}/fd/{number}").stat() for number in (0, 1)]
    assert all(os.path.samestat(stream, given.stat()) for stream in streams)


@pytest.mark.skipif(os.getuid() != 0, reason="others make no device")
def test_a_file_in_the_devices_place_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "programs").mkdir(mode=0o700)
    (tmp_path / "programs" / "null").write_text("no device")
    assert bubblewrap.null_device() == Path(os.devnull)


TALKS = """
import os, stat, struct, threading, time, _thread
def solve(x):
    channel = next(number for number in range(3, 64) if is_pipe(number))
    held = _thread.allocate_lock()
    held.acquire()
    threading.stack_size(32768)
    for _ in range(100):
        _thread.start_new_thread(held.acquire, ())
    answer = b'{"value": 1}'
    os.write(channel, struct.pack("!I", 600 + len(answer)))
    for _ in range(600):
        os.write(channel, b" ")
        time.sleep(0.005)
    os.write(channel, answer)
    os._exit(0)
def is_pipe(number):
    try:
        return stat.S_ISFIFO(os.fstat(number).st_mode) and os.write(number, b"") == 0
    except OSError:
        return False
"""


def test_threads_are_counted_while_the_program_talks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "TICK", 1.0)  # even on a busy machine it is not silent for so long
    truth = CodeTruth("functional", (CodeTest("1", "1"),), method="solve")
    assert runners.run(TALKS, truth) is GradeStatus.RUNTIME_ERROR


def test_files_are_counted_while_the_program_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "elastic_core.rewards.code"):
        assert status_of("fill_tmp_with_names") is GradeStatus.RUNTIME_ERROR
    assert f"more than {bubblewrap.MAX_FILES} files" in caplog.text


WHAT_IT_SEES = """
import os, socket, sys
print(sorted(os.listdir("/")))
print(sorted(os.listdir("/opt")), sorted(os.listdir("/dev")), os.listdir("/tmp"), os.getcwd())
print(sorted(os.environ), os.getuid(), os.getgid(), socket.gethostname())
print([line for line in sys.path if "site-packages" in line], sys.flags.isolated, sys.flags.no_site)
"""


def test_a_program_sees_the_system_only() -> None:
    seen = printed(WHAT_IT_SEES)
    assert set(json.loads(seen[0].replace("'", '"'))) <= {"dev", "lib", "lib64", "opt", "tmp", "usr"}
    assert seen[1] == "['harness', 'libraries', 'python'] ['null', 'stdin'] [] /tmp"  # the latter a link to the former
    # Python itself sets LC_CTYPE where no locale is set.
    assert seen[2] == "['LC_CTYPE', 'LD_LIBRARY_PATH', 'OPENBLAS_NUM_THREADS', 'PWD'] 1000 1000 sandbox"
    assert seen[3] == "[] 1 1"


FILES = """
import os
for folder, _, names in os.walk("/"):
    for name in names:
        if not folder.startswith(("/opt/python/lib/", "/opt/harness", "/usr/lib/locale/C.utf8")):
            print(os.path.join(folder, name))
"""


def test_a_program_sees_no_file_that_python_does_not_need() -> None:
    needed = bubblewrap.needed_libraries(())
    expected = [f"/opt/libraries/{name}" for name in needed.files]
    expected += [str(needed.loader), f"/opt/python/bin/{bubblewrap.PYTHON.name}", "/dev/null", "/dev/stdin"]
    assert sorted(printed(FILES)) == sorted(expected)


MODULES = """
import importlib, os, sys
folder = next(path for path in sys.path if path.endswith("lib-dynload"))
for file in sorted(os.listdir(folder)):
    try:
        importlib.import_module(file.partition(".")[0])
    except ImportError as error:
        print(file)
"""


def test_every_module_of_the_standard_library_finds_its_c_libraries() -> None:
    assert [file for file in printed(MODULES) if not file.startswith(bubblewrap.UNUSED)] == []


def test_what_the_user_preloads_is_not_in_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bubblewrap.needed_libraries(())
    monkeypatch.setenv("LD_PRELOAD", str(plain.files["libm.so.6"]))
    assert bubblewrap.needed_libraries.__wrapped__(()) == plain


@pytest.mark.parametrize("arrow", ["", " => /usr/lib64/ld-linux-x86-64.so.2"])
def test_the_loader_is_known_in_both_of_ldds_forms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arrow: str) -> None:
    said = ["linux-vdso.so.1 (0x1)", "libc.so.6 => /bin/sh (0x2)", f"/lib64/ld-linux-x86-64.so.2{arrow} (0x3)"]
    (tmp_path / "ldd").write_text("#!/bin/sh\n" + "".join(f"printf '\\t%s\\n' '{line}'\n" for line in said))
    (tmp_path / "ldd").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = bubblewrap.needed_libraries.__wrapped__(())
    assert found == (Path("/lib64/ld-linux-x86-64.so.2"), {"libc.so.6": Path("/bin/sh")})


def test_a_sandbox_without_its_folder_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files could not be counted."""
    with sandbox.Sandbox("candidate", bubblewrap.Limits(1 << 30, 10)) as running:
        monkeypatch.setattr(running, "_first_message", lambda deadline: READY)
        with pytest.raises(sandbox.SandboxFailed):
            running.ready()


@pytest.fixture
def ordinary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    shutil.chown(folder, ORDINARY, ORDINARY)
    yield folder
    shutil.rmtree(folder)


AS_ORDINARY = f"""
import os, sys
os.setgroups([])
os.setgid({ORDINARY})
os.setuid({ORDINARY})
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.skipif(os.getuid() != 0, reason="this is the ordinary user")
@pytest.mark.parametrize(
    "file",
    ["test_sandbox_walls.py", pytest.param("test_sandbox.py", marks=pytest.mark.slow)],
    ids=["walls", "programs"],
)
def test_all_of_it_holds_for_an_ordinary_user(ordinary_folder: Path, file: str) -> None:
    # Python and the project may lie in root's home, which nobody else may enter: here they lie in one of their own.
    home = ["--tmpfs", "/root"]
    for path in {Path(sys.base_prefix), Path(sys.prefix), ROOT}:
        if path.is_relative_to("/root"):
            for parent in reversed(path.parents[:-2]):
                home += ["--perms", "0755", "--dir", str(parent)]
            home += ["--ro-bind", str(path), str(path)]
    outer = ["bwrap", "--dev-bind", "/", "/", *home, "--cap-add", "ALL", "--die-with-parent", "--"]
    run = [sys.executable, "-c", AS_ORDINARY, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*outer, *run, "--basetemp", str(ordinary_folder / "tests"), f"tests/integration/{file}"],
        cwd=ROOT,
        env={**os.environ, "HOME": str(ordinary_folder), "TMPDIR": str(ordinary_folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
