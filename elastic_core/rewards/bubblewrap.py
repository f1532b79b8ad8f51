"""How the sandbox is started: what a program sees, and the limits it is given, as bubblewrap's command line."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from elastic_core.rewards.harness.start import PACKAGES
from elastic_core.rewards.seccomp import process_filter, system_call_filter

MAX_BYTES = 10 << 20
"""Of a program's output, of a file that it writes, and of a message."""

TMP_BYTES = 64 << 20
MAX_PROCESSES = 64
"""Processes and threads, the sandbox's own three included."""

_MAX_OPEN_FILES = 64
PROVIDED = ("numpy",)
"""Packages that a program may import where it names them, besides the standard library."""

_PYTHON = "/opt/python"
_LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


class Limits(NamedTuple):
    """Of each process: memory (address space, bytes) and CPU time (seconds)."""

    memory: int
    cpu_seconds: float


def find_bwrap() -> str | None:
    return shutil.which("bwrap")


def start(harness: str, limits: Limits, packages: Sequence[str], channel: socket.socket) -> subprocess.Popen[bytes]:
    """Start a program of `harness` with its end of the channel. Raises OSError."""
    bwrap = find_bwrap()
    if bwrap is None:
        raise FileNotFoundError("bwrap is not on PATH")
    filter_, written = os.pipe()
    try:
        os.write(written, system_call_filter())
        os.close(written)
        command = [bwrap, *_view(), *_bound(packages), *_features(bwrap), "--seccomp", str(filter_), "--", *_python()]
        run = f"import sys; sys.path.append('/opt'); from harness.{harness} import main; main()"
        return subprocess.Popen(
            [*command, "-c", run, str(channel.fileno()), *_limits(limits)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(channel.fileno(), filter_),
            env={},
            cwd="/",
        )
    finally:
        os.close(filter_)


def _view() -> list[str]:
    """Namespaces, and the file system that a program sees."""
    prefix = Path(sys.base_prefix).resolve()
    packages = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    view = ["--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    view += ["--unshare-uts", "--hostname", "sandbox", "--unshare-cgroup-try", "--die-with-parent", "--new-session"]
    view += ["--cap-drop", "ALL", "--clearenv", "--setenv", "LD_LIBRARY_PATH", f"{_PYTHON}/lib"]
    view += ["--setenv", "OPENBLAS_NUM_THREADS", "1"]
    for library in _LIBRARIES:
        view += ["--ro-bind-try", library, library]
    view += ["--ro-bind", str(prefix), _PYTHON]
    if packages.is_dir():
        inside = f"{_PYTHON}/{packages.relative_to(prefix)}"
        view += ["--tmpfs", inside, "--remount-ro", inside]
    view += ["--ro-bind", str(Path(__file__).parent / "harness"), "/opt/harness"]
    for device in _DEVICES:
        view += ["--dev-bind", device, device]
    return view


def _features(bwrap: str) -> list[str]:
    """What bubblewrap of 0.7 and 0.8 added. Without a bound on its size there is no /tmp to write to."""
    known = _help(bwrap)
    tmp = ["--size", str(TMP_BYTES), "--tmpfs", "/tmp"] if "--size" in known else ["--dir", "/tmp"]
    nested = ["--disable-userns"] if "--disable-userns" in known else []
    return [*tmp, "--chdir", "/tmp", "--remount-ro", "/", *nested]


@functools.cache
def _help(bwrap: str) -> str:
    return subprocess.run([bwrap, "--help"], capture_output=True, text=True).stdout


def _bound(packages: Sequence[str]) -> list[str]:
    return [
        argument
        for package in packages
        for path in _folders(package)
        for argument in ("--ro-bind", str(path), f"{PACKAGES}/{path.name}")
    ]


@functools.cache
def _folders(package: str) -> tuple[Path, ...]:
    """The folders of an installed package: its modules, and the libraries that its wheel brings."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return ()
    modules = Path(spec.origin).parent
    return tuple(path for path in (modules, modules.with_name(f"{package}.libs")) if path.is_dir())


def _python() -> list[str]:
    prefix = Path(sys.base_prefix).resolve()
    python = (prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}").resolve()
    return [f"{_PYTHON}/{python.relative_to(prefix)}", "-I", "-S", "-B", "-X", "utf8"]


def _limits(limits: Limits) -> list[str]:
    """As `harness.start` reads them."""
    return [
        str(limits.memory),
        str(int(limits.cpu_seconds) + 1),
        str(MAX_BYTES),
        str(_MAX_OPEN_FILES),
        str(MAX_PROCESSES) if _counts_processes() else "none",
        "0",
        process_filter().hex(),
    ]


def _counts_processes() -> bool:
    """Whether a limit on processes is the sandbox's own: older kernels count all that the user runs anywhere."""
    major, minor = platform.release().split(".")[:2]
    return (int(major), int("".join(filter(str.isdigit, minor)))) >= (5, 14)
