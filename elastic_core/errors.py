"""The one exception that reaches a user as a sentence instead of a traceback, and what such sentences are made of."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


class UserError(Exception):
    """The user's input or machine is at fault. The message names the fault, the expected form, and the way out."""


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Anyone's text for a terminal: without what would move its cursor or change its title, but with tabs and lines."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def nearest(name: str, valid: Iterable[str]) -> str:
    """The hint ', did you mean "…"?' or nothing."""
    close = difflib.get_close_matches(name, list(valid), n=1)
    return f', did you mean "{close[0]}"?' if close else ""


def first_fault(error: ValidationError, *above: str) -> str:
    """The first fault that pydantic found, in words: its key below the keys `above`, what is wrong, and the value."""
    fault = error.errors()[0]
    key = ".".join([*above, *(str(part) for part in fault["loc"] if part != "[key]")])
    return f"{key}: {worded(fault)}".removeprefix(": ")


def worded(fault: Mapping[str, Any]) -> str:
    """One of pydantic's faults without its key: what is wrong, and the value."""
    message = fault["msg"].removeprefix("Value error, ")
    message = {"missing": "missing", "extra_forbidden": "unknown key"}.get(fault["type"], message)
    # A fault between several keys of a section is in the message; the section would drown it.
    shown = fault["type"] not in ("missing", "extra_forbidden", "json_invalid") and not isinstance(fault["input"], dict)
    found = f", found {fault['input']!r:.80}" if shown else ""
    return f"{message[0].lower()}{message[1:]}{found}"


def first_line(error: BaseException) -> str:
    """The message of another library's error, in short; its name where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def no_space(error: BaseException) -> str | None:
    """What says that a disk is full, of an error and those that led to it: the system's sentence, or SQLite's."""
    for each in _causes(error):
        if any(words in str(each) for words in ("No space left on device", "Disk quota exceeded", "disk is full")):
            return first_line(each)
    return None


def no_memory(error: BaseException) -> str | None:
    """A sentence when Ray killed processes of a node with full memory, by an error or those that led to it, with the
    largest of them; else None."""
    for each in _causes(error):
        if "address the out of memory issue" in str(each):
            # Ray may put an actor's name before each line.
            found = re.findall(r"(?:^|\s)(\d+)\t([\d.]+)\t(.+)", str(each))
            # A job's message and its log's tail have the same lines: a process counts once.
            processes = {pid: (float(size), name.strip()) for pid, size, name in found}
            names = ", ".join(f"{name} ({size:.2f} GB)" for size, name in sorted(processes.values(), reverse=True)[:3])
            return "memory was full and Ray killed processes" + (f"; the largest were {names}" if names else "")
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def kind_of(value: Any) -> str:
    """The kind of a JSON document's value, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")
