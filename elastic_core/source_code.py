"""What a result was computed by: the source of the modules that make it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from elastic_core.fingerprint import hash_value, sha256_file

_PROJECT = Path(__file__).parents[1]


@cache
def source_fingerprint(*modules: str, without: Collection[str] = ()) -> str:
    """sha256 of what this project's modules are written as, and all that they import of it: a result of theirs is
    another one when that changes.

    Args:
        without: modules that are not looked into, as they have no part in the result. Hashable.
    """
    return hash_value({name: sha256_file(file) for name, file in source_files(modules, without).items()})


def source_files(modules: Iterable[str], without: Collection[str] = ()) -> dict[str, Path]:
    """Files of modules and of all that they import of this project, at the top or inside a function, by module."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        file = None if name in found or name in without else _source(name)
        if file is not None:
            found[name] = file
            waiting += _imported(file)
    return found


def _source(module: str) -> Path | None:
    path = _PROJECT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _imported(file: Path) -> Iterator[str]:
    """Names that may be modules."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
