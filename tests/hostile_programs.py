"""Programs that try to pass, to escape or to hang: those of hostile_programs.txt.

Each begins there after a line `# === GROUP/NAME`, its first line says what it tries, and it defines `attack(x)`, which
may return what it hopes to be the answer. In the text, @PORT@ is the port of a real listener of the test, @SOCKET@ the
name of a real abstract socket, and @CANARY@ a folder that holds the right answer in the file "secret" and must not
change.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Hostile(NamedTuple):
    """A program by its name."""

    name: str
    program: str


_, *_PARTS = re.split(r"^# === (\w+)/(\w+)\n", Path(__file__).with_suffix(".txt").read_text(), flags=re.MULTILINE)
GROUPS: dict[str, list[Hostile]] = {}
for _group, _name, _program in zip(_PARTS[::3], _PARTS[1::3], _PARTS[2::3], strict=True):
    GROUPS.setdefault(_group, []).append(Hostile(_name, _program))
GROUPS["forging"] += [
    # No program at all.
    Hostile("null_bytes", "def attack(x): return '\0'\n"),
    # Hides what it is in another encoding.
    Hostile("coding_cookie", '# -*- coding: utf-7 -*-\ndef attack(x): return "+AGEAYg-"\n'),
]
HOSTILE = [hostile for group in GROUPS.values() for hostile in group]
