"""How the sandbox is started: what a program sees, and the limits it is given, as bubblewrap's command line."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from elastic_core.rewards.devices import null_device
from elastic_core.rewards.harness.start import PACKAGES
from elastic_core.rewards.libraries import needed_libraries, python, python_prefix, standard_library
from elastic_core.rewards.seccomp import program_filter, system_call_filter

MAX_BYTES = 10 << 20
"""Of a program's output, of a file that it writes, and of a message."""

TMP_BYTES = 64 << 20
MAX_FILES = 4096
"""Files and folders in /tmp: each takes a kilobyte of the kernel's memory, which `TMP_BYTES` does not count."""

MAX_PROCESSES = 64
"""Processes and threads, the sandbox's own three included."""

_MAX_OPEN_FILES = 64
PROVIDED = ("numpy",)
"""Packages that a program may import where it names them, besides the standard library."""

_LOCALE = "/usr/lib/locale/C.utf8"
"""Where the C library looks for the one locale that Python chooses by itself."""
_PYTHON, _LIBRARIES = "/opt/python", "/opt/libraries"


class Limits(NamedTuple):
    """Of each process: memory (address space, bytes) and CPU time (seconds)."""

    memory: int
    cpu_seconds: float


def find_bwrap() -> str | None:
    return shutil.which("bwrap")


def start(harness: str, limits: Limits, packages: Sequence[str], channel: socket.socket) -> subprocess.Popen[bytes]:
    """Start a program of `harness` with its end of the channel.

    Raises:
        OSError: when it cannot be run.
        UserError: as `null_device`.
    """
    bwrap = find_bwrap()
    if bwrap is None:
        raise FileNotFoundError("bwrap is not on PATH")
    device = null_device()
    null = os.open(device, os.O_RDWR)
    filter_, written = os.pipe()
    try:
        os.write(written, system_call_filter())
        os.close(written)
        view = [*_namespaces(), *_python_bound(), *_packages_bound(packages), "--dev-bind", str(device), os.devnull]
        command = [bwrap, *view, *_features(bwrap), "--seccomp", str(filter_), "--", *_python()]
        run = f"import sys; sys.path.append('/opt'); from harness.{harness} import main; main()"
        return subprocess.Popen(
            [*command, "-c", run, str(channel.fileno()), *_limits(limits)],
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


def _namespaces() -> list[str]:
    view = ["--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    view += ["--unshare-uts", "--hostname", "sandbox", "--unshare-cgroup-try", "--die-with-parent", "--new-session"]
    view += ["--cap-drop", "ALL", "--clearenv", "--setenv", "LD_LIBRARY_PATH", _LIBRARIES]
    return [*view, "--setenv", "OPENBLAS_NUM_THREADS", "1"]


def _python_bound() -> list[str]:
    """Python, its standard library without what is installed beside it, and `harness`."""
    library = standard_library()
    inside = f"{_PYTHON}/{library.relative_to(python_prefix())}"
    view = ["--ro-bind", str(python()), _python()[0], "--ro-bind", str(library), inside]
    if (library / "site-packages").is_dir():
        view += ["--tmpfs", f"{inside}/site-packages", "--remount-ro", f"{inside}/site-packages"]
    view += ["--ro-bind-try", _LOCALE, _LOCALE]
    return [*view, "--ro-bind", str(Path(__file__).parent / "harness"), "/opt/harness"]


def _packages_bound(packages: Sequence[str]) -> list[str]:
    """Packages, and the C libraries that they and Python need."""
    folders = tuple(folder for package in packages for folder in _folders(package))
    loader, files = needed_libraries(folders)
    bound = {f"{PACKAGES}/{folder.name}": folder for folder in folders}
    bound |= {f"{_LIBRARIES}/{name}": file for name, file in files.items()}
    if loader is not None:
        bound[str(loader)] = loader
    return [argument for inside, path in bound.items() for argument in ("--ro-bind", str(path), inside)]


def _features(bwrap: str) -> list[str]:
    """What bubblewrap of 0.7 and 0.8 added. Without a bound on its size there is no /tmp to write to."""
    known = _help(bwrap)
    tmp = ["--size", str(TMP_BYTES), "--tmpfs", "/tmp"] if "--size" in known else ["--dir", "/tmp"]
    nested = ["--disable-userns"] if "--disable-userns" in known else []
    return [*tmp, "--chdir", "/tmp", "--remount-ro", "/", *nested]


@functools.cache
def _help(bwrap: str) -> str:
    return subprocess.run([bwrap, "--help"], capture_output=True, text=True).stdout


@functools.cache
def _folders(package: str) -> tuple[Path, ...]:
    """The folders of an installed package: its modules, and the libraries that its wheel brings."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return ()
    modules = Path(spec.origin).parent
    return tuple(path for path in (modules, modules.with_name(f"{package}.libs")) if path.is_dir())


def _python() -> list[str]:
    return [f"{_PYTHON}/{python().relative_to(python_prefix())}", "-I", "-S", "-B", "-X", "utf8"]


def _limits(limits: Limits) -> list[str]:
    """As `harness.start` reads them."""
    return [
        str(limits.memory),
        str(int(limits.cpu_seconds) + 1),
        str(MAX_BYTES),
        str(_MAX_OPEN_FILES),
        str(MAX_PROCESSES) if _counts_processes() else "none",
        "0",
        program_filter().hex(),
    ]


def _counts_processes() -> bool:
    """Whether a limit on processes is the sandbox's own: older kernels count all that the user runs anywhere."""
    major, minor = platform.release().split(".")[:2]
    return (int(major), int("".join(filter(str.isdigit, minor)))) >= (5, 14)
