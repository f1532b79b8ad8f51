"""Functions that a user's settings or options name by import path; never a path in a model's text.

A grader's path also stands in the rows of a built data set, and its module is imported when they are graded. So build
data sets yourself, from the files of others.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastic_core.errors import UserError, first_line

DIRECTORY = "ELASTIC_MODULES"
"""Environment variable of a command's processes: the directory it was started in, where its user's modules lie."""


def imported(path: str) -> Callable[..., Any]:
    """The function of an import path, "module:function", of a module that is installed or in the command's directory.
    UserError when there is none."""
    module, _, name = path.partition(":")
    directory = os.environ.setdefault(DIRECTORY, str(Path.cwd()))
    if directory not in sys.path:
        sys.path.append(directory)  # Last: a file there takes no other module's place.
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # A module may raise anything.
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f'"{path}": {reason}; expected module:function, installed or in {directory}') from None
    if not callable(found):
        raise UserError(f'"{path}" is a {type(found).__name__}; expected a function')
    return found  # type: ignore[no-any-return]
