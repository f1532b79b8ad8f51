"""Programs that try to pass, to escape or to hang: a file each, whose first line says what it tries.

Each defines `attack(x)`, which may return what it hopes to be the answer. In the text, @PORT@ is the port of a real
listener of the test, @SOCKET@ the name of a real abstract socket, and @CANARY@ a folder that holds the right answer in
the file "secret" and must not change.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Hostile(NamedTuple):
    """A program by its name."""

    name: str
    program: str


def _read(group: str) -> list[Hostile]:
    return [Hostile(file.stem, file.read_text()) for file in sorted(Path(__file__).with_name(group).glob("*.py"))]


NO_FILES = [
    # No program at all.
    Hostile("null_bytes", "def attack(x): return '\0'\n"),
    # Hides what it is in another encoding.
    Hostile("coding_cookie", '# -*- coding: utf-7 -*-\ndef attack(x): return "+AGEAYg-"\n'),
]
"""What no linter could read."""
RESOURCES, READING, ESCAPING, FORGING = map(_read, ("resources", "reading", "escaping", "forging"))
FORGING += NO_FILES
HOSTILE = [*RESOURCES, *READING, *ESCAPING, *FORGING]
