"""The one exception that reaches a user as a sentence instead of a traceback, and what such sentences are made of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class UserError(Exception):
    """The user's input or machine is at fault. The message names what was found, what was expected, what to do."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """The hint ', did you mean "…"?' or nothing."""
    close = difflib.get_close_matches(name, list(valid), n=1)
    return f', did you mean "{close[0]}"?' if close else ""


def first_line(error: BaseException) -> str:
    """What another library's error says, in short; its name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def no_space(error: BaseException | None) -> str | None:
    """What says that a disk is full, of an error and those that led to it: the system's sentence, or SQLite's."""
    while error is not None:
        if any(words in str(error) for words in ("No space left on device", "Disk quota exceeded", "disk is full")):
            return first_line(error)
        error = error.__cause__ or error.__context__
    return None


def kind_of(value: Any) -> str:
    """What a value of a JSON document is, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")
