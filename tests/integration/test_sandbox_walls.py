"""What the walls of the sandbox are made of: devices, system calls, the kernel's memory, and what is to be seen.

All of it holds for a grader that is root and for one that is not.
"""

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


CALLS = {"x86_64": (206, 294), "aarch64": (0, 26)}
"""io_setup and inotify_init1, those of these whose numbers depend on the machine."""

REFUSED = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
io_setup, inotify_init1 = NUMBERS
calls = {"io_setup": io_setup, "inotify_init1": inotify_init1, "fchmodat2": 452, "statmount": 457, "listmount": 458,
         "landlock_create_ruleset": 444, "quotactl_fd": 443, "setxattrat": 463, "removexattrat": 466,
         "open_tree_attr": 467, "file_setattr": 469, "of the future": 600}
for name, number in calls.items():
    ctypes.set_errno(0)
    answer = libc.syscall(number, None, None, 1, None, 0)
    if answer != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        print(name, answer, errno.errorcode.get(ctypes.get_errno()))
print("all tried")
"""


def test_calls_that_no_program_needs_are_refused() -> None:
    assert printed(REFUSED.replace("NUMBERS", str(CALLS[platform.machine()]))) == ["all tried"]


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
    channel = next(number for number in range(3, 64) if is_socket(number))
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
def is_socket(number):
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
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
    expected += [str(needed.loader), f"/opt/python/bin/{bubblewrap.PYTHON.name}", "/dev/null"]
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
        monkeypatch.setattr(running, "_first_frame", lambda deadline: READY)
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
