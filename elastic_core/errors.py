"""The one exception that reaches a user as a sentence instead of a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """The user's input or machine is at fault. The message names what was found, what was expected, what to do."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """The hint ', did you mean "…"?' or nothing."""
    close = difflib.get_close_matches(name, list(valid), n=1)
    return f', did you mean "{close[0]}"?' if close else ""
