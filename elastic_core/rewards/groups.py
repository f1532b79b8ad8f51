"""The parts of lists, sets, tuples, intervals and matrices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from elastic_core.rewards.truth import split_answers


class Group(NamedTuple):
    """Parts in brackets, "" for a bare list and "{}" for a set; of a matrix the rows, whose parts are cells."""

    brackets: str
    parts: tuple[str, ...]


_PM, _MP = re.compile(r"\\pm ?"), re.compile(r"\\mp ?")
_MATRIX = re.compile(r"\\begin\{([pbB]?matrix)\}(.*)\\end\{\1\}", re.DOTALL)


def parts_of(text: str) -> Group | None:
    """The parts of a list, a set, a tuple, an interval or a matrix; None if the text is one thing."""
    if match := _MATRIX.fullmatch(text):
        rows = match[2].split(r"\newline")
        return Group("matrix", tuple(row.strip() for row in rows if row.strip()))
    group = bracketed(text)
    if group is None:
        parts = _expanded(split_answers(text))
        return Group("", parts) if len(parts) > 1 else None
    return group._replace(parts=_expanded(group.parts)) if group.brackets == "{}" else group


def bracketed(text: str) -> Group | None:
    """What is between the brackets around all of a text; None if there are none."""
    if text.startswith(r"\{") and text.endswith(r"\}"):
        brackets, inner = "{}", text[2:-2]
    elif text[:1] in ("(", "[") and text[-1:] in (")", "]") and len(text) > 2:
        brackets, inner = text[0] + text[-1], text[1:-1]
    else:
        return None
    depth = 0
    for character in inner:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return None
    return Group(brackets, tuple(split_answers(inner))) if depth == 0 else None


def _expanded(parts: Iterable[str]) -> tuple[str, ...]:
    r"""Two answers for each `\pm`."""
    result: list[str] = []
    for part in parts:
        if r"\pm" in part and not bracketed(part):
            result += (
                _MP.sub("-", _PM.sub("+", part)).removeprefix("+").strip(),
                _MP.sub("+", _PM.sub("-", part)).strip(),
            )
        else:
            result.append(part)
    return tuple(result)


def cells(group: Group) -> list[list[str]]:
    """Rows of cells of a matrix; of anything else one row."""
    rows = [row.split("&") for row in group.parts] if group.brackets == "matrix" else [list(group.parts)]
    return [[cell.strip() for cell in row] for row in rows]


def has_pairing(allowed: list[list[bool]]) -> bool:
    """Whether rows and columns can be paired off along what is allowed (augmenting paths)."""
    row_of: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, fits in enumerate(allowed[row]):
            if fits and column not in tried:
                tried.add(column)
                if column not in row_of or place(row_of[column], tried):
                    row_of[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(allowed)))
