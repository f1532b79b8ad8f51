"""What a check of `elastic doctor` found."""

from __future__ import annotations

from typing import Literal, NamedTuple

GIB = 2**30


class Finding(NamedTuple):
    """What one check found."""

    check: str
    level: Literal["ok", "warning", "failure"]
    message: str
    """One sentence; unless all is well it ends with what to do."""
