"""What a navigator wrote, read as leniently as its meaning allows.

Models are asked for JSON or for "name: value" lines, and write either with fences, comments, single quotes, trailing
commas, other capitals, missing ends or prose around it. Whatever names a field is taken; nothing here raises.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

FIELDS = ("category", "direction", "method", "knowledge", "flow")

MAX_CHARACTERS = 50_000
"""Of a reply that are read: patterns and parsers must not be slow on whatever a model repeats to its limit."""
MAX_STEPS = 16
"""Most steps that a problem is solved in; a longer list is cut off."""

_FIELD = re.compile(rf"^[\s*_#>\"'`-]*({'|'.join(FIELDS)})s?[*_\"'`]*\s*[:=]\s*(.*)$", re.IGNORECASE)
_LISTED = re.compile(r"^\s*(?:[-*•]\s+|\(?(?:step\s*)?\d{1,3}\s*[.):]\s*)(.*\S)", re.IGNORECASE)
_COMMA_BEFORE_END = re.compile(r",\s*([}\]])")


@dataclass(frozen=True)
class Plan:
    """Fields as one text each, "" where the navigator left one out."""

    category: str
    direction: str
    method: str
    knowledge: str
    flow: str

    @property
    def query(self) -> str:
        """What the library is searched by."""
        return ", ".join(part for part in (self.category, self.direction, self.method) if part)


def parse_plan(reply: str) -> Plan | None:
    """The plan, or None where no field that the library could be searched by is found."""
    reply = _shortened(reply)
    fields: dict[str, str] = {}
    for document in _objects(reply):
        fields = {name: fields.get(name) or text for name, text in _named(document)} | fields
    plan = Plan(**{name: fields.get(name) or _line(reply, name) for name in FIELDS})
    return plan if plan.query else None


def parse_steps(reply: str) -> list[str]:
    """Numbered or bulleted lines, or the texts of a JSON list; at most `MAX_STEPS`, none where nothing is listed."""
    reply = _shortened(reply)
    listed = [match[1].strip() for line in reply.splitlines() if (match := _LISTED.match(line))]
    if not listed:
        lists = [document for document in _values(reply, "[", "]") if isinstance(document, list)]
        listed = [_text(item) for item in lists[-1]] if lists else []
    return [step for step in listed if step][:MAX_STEPS]


def _shortened(reply: str) -> str:
    return reply[-MAX_CHARACTERS:].replace("\0", "")


def _objects(reply: str) -> Iterator[dict[Any, Any]]:
    yield from (value for value in _values(reply, "{", "}") if isinstance(value, dict))


def _values(reply: str, begin: str, end: str) -> Iterator[Any]:
    """The widest stretch between two brackets, as JSON or, with single quotes, as a Python literal."""
    first, last = reply.find(begin), reply.rfind(end)
    if not 0 <= first < last:
        return
    text = _COMMA_BEFORE_END.sub(r"\1", reply[first : last + 1])
    try:
        yield json.loads(text, strict=False)
    except (ValueError, RecursionError):
        try:
            yield ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return


def _named(document: dict[Any, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Fields of an object, or of the objects in it, such as {"plan": {…}}."""
    for key, value in document.items():
        name = str(key).strip().lower()
        field = next((field for field in FIELDS if field in name), None)
        if field:
            yield field, _text(value)
        elif isinstance(value, dict) and depth < 3:
            yield from _named(value, depth + 1)


def _line(reply: str, field: str) -> str:
    """The text behind a field's name, and where nothing is behind it the lines below up to a blank one."""
    lines = reply.splitlines()
    for number, line in enumerate(lines):
        match = _FIELD.match(line)
        if match and match[1].lower() == field:
            below = []
            for following in lines[number + 1 :]:
                if match[2].strip() or not following.strip() or _FIELD.match(following):
                    break
                below.append(following.strip())
            return " ".join([match[2].strip(" \t\"',*`"), *below]).strip()
    return ""


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(_text(part) for part in value.values())
    if isinstance(value, list | tuple | set):
        return "; ".join(map(_text, value))
    return "" if value is None else " ".join(str(value).split())
