"""Content hashes: what a result was computed from, whatever it is called and wherever it lies."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

_MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
_PROJECT = Path(__file__).parents[1]
_TOKENIZER_FILES = ("tokenizer*", "chat_template*", "vocab*", "merges*")


def sha256_file(file: Path) -> str:
    """sha256 of a file's contents."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_files(files: Iterable[Path], sha256: Callable[[Path], str] = sha256_file) -> str:
    """sha256 over names and contents, in the order of their names.

    Args:
        sha256: of one file's contents; one that remembers saves reading large files again.
    """
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda path: path.name):
        digest.update(file.name.encode() + b"\0")
        digest.update(bytes.fromhex(sha256(file)))
    return digest.hexdigest()


def hash_value(value: Any) -> str:
    """sha256 of a JSON-serialisable value, independent of key order."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def model_fingerprint(checkpoint: Path, sha256: Callable[[Path], str] = sha256_file) -> str:
    """sha256 of a Hugging Face checkpoint directory's weights, configuration and tokenizer, first 16 hex digits.

    Args:
        sha256: as in `hash_files`.

    Raises:
        ValueError: when the directory holds no safetensors weights.
    """
    files = [file for pattern in _MODEL_FILES for file in checkpoint.glob(pattern)]
    if not any(file.suffix == ".safetensors" for file in files):
        raise ValueError(f"{checkpoint}: no model checkpoint there; expected a directory with *.safetensors")
    return hash_files(files, sha256)[:16]


def tokenizer_fingerprint(checkpoint: Path) -> str:
    """sha256 of the tokenizer of a Hugging Face checkpoint directory, first 16 hex digits.

    Raises:
        ValueError: when the directory holds no tokenizer.
    """
    files = {file for pattern in _TOKENIZER_FILES for file in checkpoint.glob(pattern)}
    if not files:
        raise ValueError(f"{checkpoint}: no tokenizer there; expected a Hugging Face checkpoint directory")
    return hash_files(files)[:16]


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
