"""Content hashes of the data and the code that a result was computed by, whatever their names and places."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from elastic_core.system.files import write_text

_MODEL_FILES = ("config.json", "generation_config.json", "*.safetensors", "tokenizer.json", "tokenizer_config.json",
                "chat_template.jinja", "thought.toml")  # fmt: skip
_TOKENIZER_FILES = ("tokenizer*", "chat_template*", "vocab*", "merges*", "thought.toml")
_PROJECT, _PACKAGES = Path(__file__).parents[2], {"elastic_core", "flows", "reports", "tasks"}


def sha256_file(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_files(files: Iterable[Path], sha256: Callable[[Path], str] = sha256_file) -> str:
    """sha256 over names and contents, in the order of their names. `sha256` may be one that remembers large files."""
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
    ValueError when the directory holds no safetensors weights."""
    files = [file for pattern in _MODEL_FILES for file in checkpoint.glob(pattern)]
    if not any(file.suffix == ".safetensors" for file in files):
        raise ValueError(f"{checkpoint}: no model checkpoint there; expected a directory with *.safetensors")
    return hash_files(files, sha256)[:16]


def tokenizer_fingerprint(checkpoint: Path) -> str:
    """sha256 of the tokenizer of a Hugging Face checkpoint directory, first 16 hex digits. ValueError without one."""
    files = {file for pattern in _TOKENIZER_FILES for file in checkpoint.glob(pattern)}
    if not files:
        raise ValueError(f"{checkpoint}: no tokenizer there; expected a Hugging Face checkpoint directory")
    return hash_files(files)[:16]


class HashCache:
    """sha256 of files, computed again only when size or modification time has changed.

    It trusts the file system's times: a change that restores both size and time goes unnoticed.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries = self._read()
        self._new: dict[str, tuple[int, int, str]] = {}

    def sha256(self, path: Path) -> str:
        """The file's sha256, as 64 hexadecimal digits. OSError when it cannot be read."""
        stat = path.stat()  # Before reading: a file that changes then is hashed again next time.
        cached = self._entries.get(_place(path))
        if cached and cached[:2] == (stat.st_size, stat.st_mtime_ns):
            return cached[2]
        sha256 = sha256_file(path)
        self._keep(path, (stat.st_size, stat.st_mtime_ns, sha256))
        return sha256

    def renamed(self, old: Path, new: Path) -> None:
        """Keep the entry of a file that was moved: size and time move with it."""
        entry = self._entries.pop(_place(old), None)
        self._new.pop(_place(old), None)
        if entry:
            self._keep(new, entry)

    def save(self) -> None:
        """Write new entries. A cache that cannot be written costs time only, so that is not an error."""
        from filelock import FileLock

        if not self._new:
            return
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._file.with_name(".hashes.lock")):
                write_text(self._file, json.dumps({**self._read(), **self._new}, indent=0, sort_keys=True) + "\n")
            self._new.clear()

    def _keep(self, path: Path, entry: tuple[int, int, str]) -> None:
        self._entries[_place(path)] = self._new[_place(path)] = entry

    def _read(self) -> dict[str, tuple[int, int, str]]:
        try:
            entries = json.loads(self._file.read_text()).items()
            return {path: (int(size), int(time), str(sha256)) for path, (size, time, sha256) in entries}
        except (OSError, ValueError, TypeError, AttributeError):  # None, or a broken one.
            return {}


def _place(path: Path) -> str:
    """The file's resolved path: a link to it is not read again."""
    return str(path.resolve())


@cache
def source_fingerprint(*modules: str, without: Collection[str] = ()) -> str:
    """sha256 of the source of this project's modules and of all that they import of it, except `without` (hashable):
    modules that have no part in the result."""
    return hash_value({name: sha256_file(file) for name, file in source_files(modules, without).items()})


def source_files(modules: Iterable[str], without: Collection[str] = (), root: Path | None = None) -> dict[str, Path]:
    """Files of modules and of all that they import of this project, or of what else lies below `root`, at the top or
    inside a function, by module."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        file = None if name in found or name in without else _source(name, root or _PROJECT)
        if file is not None:
            found[name] = file
            waiting += _imported(file.read_text())
    return found


def _source(module: str, root: Path) -> Path | None:
    parts = module.split(".")
    # Where the project is installed, other packages lie next to it.
    if (parts[0] in _PACKAGES) != (root == _PROJECT):
        return None
    path = root.joinpath(*parts)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def _imported(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found
