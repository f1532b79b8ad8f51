"""What the first fetch found, so that later ones hold to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

from elastic_core.data.dataset import GitHub, Hub, Local
from elastic_core.errors import UserError
from elastic_core.system.files import write_text


@dataclass(frozen=True)
class Pin:
    """What identifies a file's content; None where it is not known. `bytes` is its size."""

    sha256: str | None
    bytes: int | None

    def contradicts(self, other: Pin) -> bool:
        """Whether both know something and it differs."""
        return self.completed(other) != other.completed(self)

    def completed(self, other: Pin) -> Pin:
        """With what the other knows where this one does not."""
        size = other.bytes if self.bytes is None else self.bytes
        return Pin(self.sha256 or other.sha256, size)

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


_ENTRIES = TypeAdapter(dict[str, Entry])


class PinFile:
    """The pins of a directory of sources. Safe for several threads and processes."""

    def __init__(self, sources: Path) -> None:
        """
        Raises:
            UserError: when the file cannot be read.
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
                document = _ENTRIES.dump_python(entries, mode="json")
                write_text(self.path, json.dumps(document, indent=2, sort_keys=True) + "\n")
            self._entries = entries

    def contradiction(self, key: str, what: str, recorded: object, found: object) -> UserError:
        """The error that says what differs from the recorded pins, and how to accept it."""
        return UserError(
            f"{self.path} records {what} of {key} as {recorded}, found {found}; "
            f'delete the entry "{key}" there to accept the new content'
        )

    def _merged(self, key: str, recorded: Entry, found: Entry) -> Entry:
        for what, old, new in (
            ("the requested revision", recorded.requested, found.requested),
            ("the commit", recorded.revision, found.revision),
        ):
            if None not in (old, new) and old != new:
                raise self.contradiction(key, what, old, new)
        for pattern, names in found.patterns.items():
            if names != (before := recorded.patterns.get(pattern, names)):
                raise self.contradiction(key, f"the files of {pattern}", ", ".join(before), ", ".join(names))
        for path, pin in found.files.items():
            if pin.contradicts(recorded.files.get(path, UNKNOWN)):
                raise self.contradiction(key, path, recorded.files[path], pin)
        return Entry(
            requested=recorded.requested or found.requested,
            revision=recorded.revision or found.revision,
            patterns={**recorded.patterns, **found.patterns},
            files={**recorded.files, **found.files},
        )

    def _read(self) -> dict[str, Entry]:
        try:
            return _ENTRIES.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UserError(
                f"{self.path}: not a record of sources ({where}: {first['msg']}); "
                "restore it, or delete it to record anew"
            ) from None


def source_key(source: GitHub | Hub | Local) -> str:
    """The source's name among the pins."""
    if isinstance(source, Local):
        return f"local:{source.directory}"
    return f"{'hub' if isinstance(source, Hub) else 'github'}:{source.repository}"
