"""What Python and a package need of the machine's C libraries: these files, and no others, are there in the sandbox."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

_UNUSED = ("_test", "_tkinter", "_curses", "readline", "nis.", "ossaudiodev", "spwd", "xx", "_xx")
"""Modules of the standard library that no program of a problem has a use for, by the beginnings of their names. Some
need dozens of libraries: windows, sound, the login of other machines."""

_THREADS_END = "libgcc_s.so.1"
"""The C library loads it when a thread ends; nothing names it."""


class Libraries(NamedTuple):
    """Attributes:
    loader: what starts Python, at the one place where it is looked for; None where Python needs none.
    files: libraries, by the name that they are loaded by.
    """

    loader: Path | None
    files: dict[str, Path]


def python_prefix() -> Path:
    return Path(sys.base_prefix).resolve()


def python() -> Path:
    return (python_prefix() / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}").resolve()


def standard_library() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()


@functools.cache
def needed_libraries(folders: tuple[Path, ...]) -> Libraries:
    """What Python, its standard library and the modules in these folders need, outside of them.

    Raises:
        OSError: when `ldd`, which comes with the C library, cannot be run.
    """
    modules = (standard_library() / "lib-dynload").glob("*.so")
    used = [module for module in modules if not module.name.startswith(_UNUSED)]
    used += [file for folder in folders for file in folder.rglob("*.so")]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    said = subprocess.run(["ldd", python(), *used], capture_output=True, text=True, env=environment).stdout
    # "name => path (address)", or "path (address)". The loader is the one whose name is a path, in either form.
    found = re.findall(r"^\t(\S+)(?: => (/.+))? \(0x", said, re.MULTILINE)
    loader = next((Path(name) for name, _ in found if name.startswith("/")), None)
    files = {name: Path(path) for name, path in found if path and not name.startswith("/")}
    own = [folder.resolve() for folder in folders]
    files = {name: file for name, file in files.items() if not any(map(file.resolve().is_relative_to, own))}
    if "libc.so.6" in files:
        files.setdefault(_THREADS_END, files["libc.so.6"].with_name(_THREADS_END))
    return Libraries(loader, {name: path for name, path in files.items() if path.exists()})
