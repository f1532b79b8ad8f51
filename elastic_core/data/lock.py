"""What the first fetch found, so that later ones hold to it; and checksums, so that large files are hashed once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from elastic_core.atomic import replacing
from elastic_core.data.dataset import GitHub, Hub, Local
from elastic_core.errors import UserError
from elastic_core.fingerprint import sha256_file


class Pin(NamedTuple):
    """What identifies a file's content; None where it is not known. `bytes` is its size."""

    sha256: str | None
    bytes: int | None

    def contradicts(self, other: Pin) -> bool:
        """Whether both know something and it differs."""
        return any(None not in (mine, theirs) and mine != theirs for mine, theirs in zip(self, other, strict=True))

    def completed(self, other: Pin) -> Pin:
        """With what the other knows where this one does not."""
        return Pin(
            other.sha256 if self.sha256 is None else self.sha256, other.bytes if self.bytes is None else self.bytes
        )

    def __str__(self) -> str:
        size = "" if self.bytes is None else f" ({self.bytes} bytes)"
        return f"sha256 {self.sha256 or 'unknown'}{size}"


UNKNOWN = Pin(None, None)


@dataclass(frozen=True)
class Entry:
    """What is recorded of one source.

    Attributes:
        requested: the revision that the data set named, such as "main".
        revision: the commit it stood for; None when all files came from a mirror.
        patterns: the files that each pattern stood for. Without them the files that one pattern brought could pass
            for all files of another.
        files: by path in the repository.
    """

    requested: str | None = None
    revision: str | None = None
    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, Pin] = field(default_factory=dict)


class SourcesLock:
    """The lock file of a directory of sources. Safe for several threads and processes."""

    def __init__(self, sources: Path) -> None:
        """
        Raises:
            UserError: when the lock file cannot be read.
        """
        self.path = sources / "sources.lock.json"
        self._entries = self._read()

    def entry(self, key: str) -> Entry:
        return self._entries.get(key, Entry())

    def record(self, key: str, found: Entry) -> None:
        """Add what was found to what is recorded.

        Raises:
            UserError: when they contradict each other; then nothing is written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_name(".sources.lock")):
            entries = self._read()  # Others may have written since.
            merged = self._merged(key, entries.get(key, Entry()), found)
            if merged != entries.get(key):
                entries[key] = merged
                with replacing(self.path) as temporary:
                    document = {name: _to_json(entry) for name, entry in entries.items()}
                    temporary.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
            self._entries = entries

    def contradiction(self, key: str, what: str, recorded: object, found: object) -> UserError:
        """The error that says what differs from the lock, and how to accept it."""
        return UserError(
            f"{self.path} records {what} of {key} as {recorded}, found {found}; "
            f'delete the entry "{key}" there to accept the new content'
        )

    def _merged(self, key: str, recorded: Entry, found: Entry) -> Entry:
        for name in ("requested", "revision"):
            old, new = getattr(recorded, name), getattr(found, name)
            if None not in (old, new) and old != new:
                raise self.contradiction(key, f"the {name} revision" if name == "requested" else "the commit", old, new)
        for pattern, names in found.patterns.items():
            if names != (old := recorded.patterns.get(pattern, names)):
                raise self.contradiction(key, f"the files of {pattern}", ", ".join(old), ", ".join(names))
        for path, pin in found.files.items():
            if path in recorded.files and pin.contradicts(recorded.files[path]):
                raise self.contradiction(key, path, recorded.files[path], pin)
        return Entry(
            requested=recorded.requested or found.requested,
            revision=recorded.revision or found.revision,
            patterns={**recorded.patterns, **found.patterns},
            files={**recorded.files, **found.files},
        )

    def _read(self) -> dict[str, Entry]:
        try:
            return {key: _from_json(entry) for key, entry in json.loads(self.path.read_text()).items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"{self.path}: not a lock file of sources ({error}); restore it, or delete it to record anew"
            ) from error


def source_key(source: GitHub | Hub | Local) -> str:
    """The source's name in the lock."""
    if isinstance(source, Local):
        return f"local:{source.directory}"
    return f"{'hub' if isinstance(source, Hub) else 'github'}:{source.repository}"


def _to_json(entry: Entry) -> dict[str, Any]:
    document = asdict(entry) | {"files": {path: pin._asdict() for path, pin in entry.files.items()}}
    return document if entry.patterns else {name: document[name] for name in document if name != "patterns"}


def _from_json(document: dict[str, Any]) -> Entry:
    return Entry(
        requested=document.get("requested"),
        revision=document["revision"],
        patterns={pattern: tuple(names) for pattern, names in document.get("patterns", {}).items()},
        files={path: Pin(pin["sha256"], pin["bytes"]) for path, pin in document["files"].items()},
    )


class HashCache:
    """sha256 of files, computed again only when size or modification time has changed.

    It trusts the file system's times: whoever changes a file and restores both size and time goes unnoticed.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries = self._read()
        self._new: dict[str, list[Any]] = {}

    def sha256(self, path: Path) -> str:
        """The file's sha256, as 64 hexadecimal digits.

        Raises:
            OSError: when it cannot be read.
        """
        stat = path.stat()  # Before reading: a file that changes meanwhile is hashed again next time.
        cached = self._entries.get(str(path.absolute()))
        if cached and cached[:2] == [stat.st_size, stat.st_mtime_ns]:
            return cached[2]
        sha256 = sha256_file(path)
        self._keep(path, [stat.st_size, stat.st_mtime_ns, sha256])
        return sha256

    def renamed(self, old: Path, new: Path) -> None:
        """Keep what is known of a file that was moved: size and time move with it."""
        entry = self._entries.pop(str(old.absolute()), None)
        self._new.pop(str(old.absolute()), None)
        if entry:
            self._keep(new, entry)

    def save(self) -> None:
        """Write what was computed. A cache that cannot be written costs time only, so that is no error."""
        if not self._new:
            return
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._file.with_name(".hashes.lock")), replacing(self._file) as temporary:
                temporary.write_text(json.dumps({**self._read(), **self._new}, indent=0, sort_keys=True) + "\n")

    def _keep(self, path: Path, entry: list[Any]) -> None:
        self._entries[str(path.absolute())] = self._new[str(path.absolute())] = entry

    def _read(self) -> dict[str, list[Any]]:
        try:
            entries = json.loads(self._file.read_text()).items()
        except (OSError, ValueError, AttributeError):
            return {}
        return {path: entry for path, entry in entries if _is_cached_hash(entry)}


def _is_cached_hash(entry: object) -> bool:
    return isinstance(entry, list) and [type(part) for part in entry] == [int, int, str]
