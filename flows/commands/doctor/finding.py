"""What a check found."""

from __future__ import annotations

from typing import Literal, NamedTuple

from elastic_core.errors import UserError

GIB = 2**30


class Finding(NamedTuple):
    """What one check found."""

    check: str
    level: Literal["ok", "warning", "failure"]
    message: str
    """One sentence; unless all is well it ends with what to do."""


def judged(
    check: str, well: bool, found: str, problem: str, level: Literal["warning", "failure"] = "failure"
) -> Finding:
    return Finding(check, "ok", found) if well else Finding(check, level, problem)


def require(*findings: Finding) -> None:
    """Nothing, when no finding is a failure. Raises UserError with the sentence of each failure."""
    if failures := [finding.message for finding in findings if finding.level == "failure"]:
        raise UserError("; ".join(failures))
