"""Objects of the user's modules, by import path.

A path is imported where it is declared: by a setting, by an option, or by the record of a data set in `runs/datasets`.
Rows of tables and of built data sets name graders and strategies too. A path that stands in these alone is refused.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastic_core.errors import UserError, first_line
from elastic_core.system.fingerprint import hash_files, source_files

DIRECTORY = "ELASTIC_MODULES"
"""Environment variable of a command's processes: the directory it was started in, where its user's modules lie."""
DECLARED = "ELASTIC_IMPORTS"
"""Environment variable of a command's processes: the declared paths, with commas between them. Users may set it too."""


def declare(path: str) -> str:
    """Permit this process and its children to import a path, if it is one; returns it."""
    if ":" in path:
        os.environ[DECLARED] = ",".join(sorted({path, *_declared()}))
    return path


def is_declared(path: str) -> bool:
    return path in _declared()


def _declared() -> list[str]:
    return [path for path in os.environ.get(DECLARED, "").split(",") if path]


def _directory() -> str:
    return os.environ.setdefault(DIRECTORY, str(Path.cwd()))


def environment() -> dict[str, str]:
    """Variables that let processes of a job import what this one may."""
    return {DIRECTORY: _directory(), DECLARED: ",".join(_declared())}


def imported(path: str, kind: Any = Callable) -> Any:
    """The object of a declared import path, "module:name", of one that is installed or in the command's directory.
    UserError when there is none of this kind, or the path is not declared."""
    directory = _directory()
    if not is_declared(path):
        raise UserError(
            f'"{path}" stands in rows alone, and is not imported; expected a setting, or a data set of '
            f"`elastic data add`, that names it; or trust it by {DECLARED}={path}"
        )
    if directory not in sys.path:
        sys.path.append(directory)  # Last: a file there takes no other module's place.
    module, _, name = path.partition(":")
    wanted = "function" if kind is Callable else kind.__name__
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # A module may raise anything.
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f'"{path}": {reason}; expected module:{wanted}, installed or in {directory}') from None
    if not isinstance(found, kind):
        raise UserError(f'"{path}" is a {type(found).__name__}; expected a {wanted}')
    return found


def code_of(path: str) -> str:
    """sha256 of an imported path's module, and of its imports below the command's directory, 16 hexadecimal digits."""
    module = path.partition(":")[0]
    files = source_files([module], root=Path(_directory())) or {module: Path(str(sys.modules[module].__file__))}
    return hash_files(files.values())[:16]
