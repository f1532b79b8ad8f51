"""What the hub's files must be: recorded by the first fetch in `sources.lock.json`, and held to by later ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from elastic_core.errors import UserError
from elastic_core.system.files import write_text


@dataclass(frozen=True)
class Pin:
    """What identifies a file's content; None where it is not known. `bytes` is its size."""

    sha256: str | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        size = "" if self.bytes is None else f" ({self.bytes} bytes)"
        return f"sha256 {self.sha256 or 'unknown'}{size}"


@dataclass
class Entry:
    """Record of one repository, at the revision that data sets name."""

    revision: str | None = None  # the commit; None when all files came from a mirror
    patterns: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the files that each pattern stands for
    files: dict[str, Pin] = field(default_factory=dict)  # by path in the repository


_ENTRIES = TypeAdapter(dict[str, Entry])


def read_pins(file: Path) -> dict[str, Entry]:
    """Entries by key; none where there is no file. UserError for a file of another kind."""
    try:
        return _ENTRIES.validate_json(file.read_bytes())
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        what = f"not a record of sources ({where}: {first['msg']})"
        raise UserError(f"{file}: {what}; restore it, or delete it to record anew") from None


def write_pins(file: Path, entries: Mapping[str, Entry]) -> None:
    content = _ENTRIES.dump_python(dict(entries), mode="json")
    write_text(file, json.dumps(content, indent=2, sort_keys=True) + "\n")
