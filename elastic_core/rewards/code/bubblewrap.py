"""Start of the sandbox: the view and the limits of a program, as bubblewrap's command line."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import socket
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from elastic_core.rewards.code.harness import PACKAGES
from elastic_core.rewards.code.processors import own_directory
from elastic_core.rewards.code.seccomp import program_filter, system_call_filter

MAX_BYTES = 10 << 20  # of a program's output, of a file that it writes, and of a message

TMP_BYTES = 64 << 20
MAX_FILES = 4096
"""Files and folders in /tmp: each takes a kilobyte of the kernel's memory, which `TMP_BYTES` does not count."""

MAX_PROCESSES = 64  # processes and threads, the sandbox's three included

_MAX_OPEN_FILES = 64
_MAX_SIGNALS = 64  # pending signals and timers, which the kernel counts by user
PROVIDED = ("numpy",)  # packages that a program may import where it names them, in addition to the standard library

UNUSED = ("_test", "_tkinter", "_curses", "readline", "nis.", "ossaudiodev", "spwd", "xx", "_xx")
"""Modules of the standard library that no program of a problem has a use for, by the beginnings of their names. Some
need dozens of libraries: windows, sound, the login of other machines."""

_THREADS_END = "libgcc_s.so.1"  # the C library loads it when a thread ends; nothing names it
_LOCALE = "/usr/lib/locale/C.utf8"  # where the C library looks for the one locale that Python chooses by itself

_PREFIX = Path(sys.base_prefix).resolve()
PYTHON = (_PREFIX / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}").resolve()
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
_PYTHON_INSIDE = f"/opt/python/{PYTHON.relative_to(_PREFIX)}"
_LIBRARIES_INSIDE = "/opt/libraries"
_NULL = os.makedev(1, 3)


class Limits(NamedTuple):
    """Limits of each process: address space in bytes, CPU time in seconds."""

    memory: int
    cpu_seconds: float


class Libraries(NamedTuple):
    """What starts Python, at the one place where it is looked for, and libraries by the name they are loaded by."""

    loader: Path | None  # None where Python needs none
    files: dict[str, Path]


def find_bwrap() -> str | None:
    return shutil.which("bwrap")


def start(harness: str, limits: Limits, packages: Sequence[str], channel: socket.socket) -> subprocess.Popen[bytes]:
    """Start a program of `harness`. OSError when it cannot be run; UserError as `null_device`."""
    bwrap = find_bwrap()
    if bwrap is None:
        raise FileNotFoundError("bwrap is not on PATH")
    device = null_device()
    null = os.open(device, os.O_RDWR)
    filter_, written = os.pipe()
    try:
        os.write(written, system_call_filter())
        os.close(written)
        # The name only, for what looks whether it exists: `harness.stand_ins` opens it.
        view = [*_view(packages), "--dev-bind", str(device), os.devnull, "--symlink", "null", "/dev/stdin"]
        python = [_PYTHON_INSIDE, "-I", "-S", "-B", "-X", "utf8"]
        module, main = ("candidate", "stdin") if harness == "stdin" else (harness, "main")
        run = f"import sys; sys.path.append('/opt'); from harness.{module} import {main}; {main}()"
        command = [bwrap, *view, *_features(bwrap), "--seccomp", str(filter_), "--", *python, "-c", run]
        return subprocess.Popen(
            [*command, str(channel.fileno()), *_limits(limits)],
            stdin=null,
            stdout=null,
            stderr=subprocess.PIPE,
            pass_fds=(channel.fileno(), filter_),
            env={},
            cwd="/",
        )
    finally:
        os.close(filter_)
        os.close(null)


def null_device() -> Path:
    """A null device other than the machine's, where this user is root, who owns every device that the sandbox
    shows; the machine's elsewhere. UserError as `private_directory`."""
    if os.getuid() == 0:
        device = own_directory() / "null"
        # A container may not make devices, and a file system may be mounted without any.
        with suppress(OSError):
            with suppress(FileExistsError):
                os.mknod(device, stat.S_IFCHR | 0o600, _NULL)
            descriptor = os.open(device, os.O_RDWR | os.O_NOFOLLOW)
            is_null = os.fstat(descriptor).st_rdev == _NULL
            os.close(descriptor)
            if is_null:
                return device
    return Path(os.devnull)


@functools.cache
def needed_libraries(folders: tuple[Path, ...]) -> Libraries:
    """The C libraries of the machine that Python, its standard library and the modules in these folders need: no others
    are there in the sandbox. OSError when `ldd` cannot be run."""
    used = [module for module in (_STANDARD_LIBRARY / "lib-dynload").glob("*.so") if not module.name.startswith(UNUSED)]
    used += [file for folder in folders for file in folder.rglob("*.so")]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    output = subprocess.run(["ldd", PYTHON, *used], capture_output=True, text=True, env=environment).stdout
    # "name => path (address)", or "path (address)". The loader's name is a path, in either form.
    found = re.findall(r"^\t(\S+)(?: => (/.+))? \(0x", output, re.MULTILINE)
    loader = next((Path(name) for name, _ in found if name.startswith("/")), None)
    files = {name: Path(path) for name, path in found if path and not name.startswith("/")}
    own = [folder.resolve() for folder in folders]
    files = {name: file for name, file in files.items() if not any(map(file.resolve().is_relative_to, own))}
    if "libc.so.6" in files:
        files.setdefault(_THREADS_END, files["libc.so.6"].with_name(_THREADS_END))
    return Libraries(loader, {name: path for name, path in files.items() if path.exists()})


def _view(packages: Sequence[str]) -> list[str]:
    """Namespaces; Python, its standard library without site-packages, and `harness`; packages, and the C
    libraries that they and Python need."""
    view = ["--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    view += ["--unshare-uts", "--hostname", "sandbox", "--unshare-cgroup-try", "--die-with-parent", "--new-session"]
    view += ["--cap-drop", "ALL", "--clearenv", "--setenv", "LD_LIBRARY_PATH", _LIBRARIES_INSIDE]
    inside = f"/opt/python/{_STANDARD_LIBRARY.relative_to(_PREFIX)}"
    view += ["--setenv", "OPENBLAS_NUM_THREADS", "1"]
    view += ["--ro-bind", str(PYTHON), _PYTHON_INSIDE, "--ro-bind", str(_STANDARD_LIBRARY), inside]
    if (_STANDARD_LIBRARY / "site-packages").is_dir():
        view += ["--tmpfs", f"{inside}/site-packages", "--remount-ro", f"{inside}/site-packages"]
    view += ["--ro-bind-try", _LOCALE, _LOCALE]
    view += ["--ro-bind", str(Path(__file__).parent / "harness"), "/opt/harness"]
    folders = tuple(folder for package in packages for folder in _folders(package))
    loader, files = needed_libraries(folders)
    bound = {f"{PACKAGES}/{folder.name}": folder for folder in folders}
    bound |= {f"{_LIBRARIES_INSIDE}/{name}": file for name, file in files.items()}
    if loader is not None:
        bound[str(loader)] = loader
    for target, path in bound.items():
        view += ["--ro-bind", str(path), target]
    return view


@functools.cache
def _features(bwrap: str) -> list[str]:
    """What bubblewrap of 0.7 and 0.8 added. Without a bound on its size /tmp is read-only."""
    known = subprocess.run([bwrap, "--help"], capture_output=True, text=True).stdout
    tmp = ["--size", str(TMP_BYTES), "--tmpfs", "/tmp"] if "--size" in known else ["--dir", "/tmp"]
    nested = ["--disable-userns"] if "--disable-userns" in known else []
    return [*tmp, "--chdir", "/tmp", "--remount-ro", "/", *nested]


@functools.cache
def _folders(package: str) -> tuple[Path, ...]:
    """The folders of an installed package: its modules, and the libraries that its wheel brings."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return ()
    modules = Path(spec.origin).parent
    return tuple(path for path in (modules, modules.with_name(f"{package}.libs")) if path.is_dir())


def _limits(limits: Limits) -> list[str]:
    """Arguments of `harness.start`. Kernels before 5.14 count all processes that the user runs anywhere: there the
    limit would not be one of the sandbox alone."""
    major, minor = platform.release().split(".")[:2]
    counts_processes = (int(major), int("".join(filter(str.isdigit, minor)))) >= (5, 14)
    processes = MAX_PROCESSES if counts_processes else "none"
    given = limits.memory, int(limits.cpu_seconds) + 1, MAX_BYTES, _MAX_OPEN_FILES, processes, _MAX_SIGNALS, 0
    return [*map(str, given), program_filter().hex()]
