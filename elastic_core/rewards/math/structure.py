r"""The structure of an answer: the parts of lists, sets, tuples, intervals and matrices; the sides of equations; and
inequalities as the sets of numbers that meet them: `x<2\cup x>3` is `(-\infty,2)\cup(3,\infty)`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from elastic_core.rewards.truth import split_answers

_PM, _MP = re.compile(r"\\pm(?![a-z]) ?"), re.compile(r"\\mp(?![a-z]) ?")
_MATRIX = re.compile(r"\\begin\{([pbB]?matrix)\}(.*)\\end\{\1\}", re.DOTALL)
_TRANSPOSED = re.compile(r"(.+[)}\]])\^\{?(?:T|\\top|\\text\{T\})\}?", re.DOTALL)
_SIGN = re.compile(r"(<|>|\\leq(?![a-zA-Z])|\\geq(?![a-zA-Z])|\\neq(?![a-zA-Z])|=)")
_JOINT = re.compile(r"(\\cup(?![a-zA-Z])|\\cap(?![a-zA-Z])|,)")
_VARIABLE = re.compile(r"[a-zA-Z]|\\(?:alpha|beta|theta|lambda)")
_VECTORS = ("()", "[]", "matrix")
_MIRRORED = {"<": ">", ">": "<", "\\leq": "\\geq", "\\geq": "\\leq", "\\neq": "\\neq"}


class Group(NamedTuple):
    """Parts in brackets, "" for a bare list and "{}" for a set; of a matrix the rows, each of cells."""

    brackets: str
    parts: tuple[str, ...]


def parts_of(text: str) -> Group | None:
    """The parts of a list, a set, a tuple, an interval or a matrix; None if the text is one thing."""
    if match := _MATRIX.fullmatch(text):
        rows = match[2].split(r"\newline")
        return Group("matrix", tuple(row.strip() for row in rows if row.strip()))
    if (match := _TRANSPOSED.fullmatch(text)) and (group := parts_of(match[1])) and group.brackets in _VECTORS:
        return Group("matrix", tuple("&".join(column) for column in zip(*cells(group), strict=False)))
    group = bracketed(text)
    if group is None:
        parts = _expanded(split_answers(text))
        return Group("", parts) if len(parts) > 1 else None
    return group._replace(parts=_expanded(group.parts)) if group.brackets == "{}" else group


def bracketed(text: str) -> Group | None:
    """Parts between the brackets around all of a text; None if there are none."""
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
        if _PM.search(part) and not bracketed(part):
            plus, minus = _MP.sub("-", _PM.sub("+", part)), _MP.sub("+", _PM.sub("-", part))
            result += (plus.removeprefix("+").strip(), minus.strip())
        else:
            result.append(part)
    return tuple(result)


def cells(group: Group) -> list[list[str]]:
    """Rows of cells of a matrix; of anything else one row."""
    rows = [row.split("&") for row in group.parts] if group.brackets == "matrix" else [list(group.parts)]
    return [[cell.strip() for cell in row] for row in rows]


_NAME = (  # x, f(3), (x,y), AB, \overline{AB}, m\angle ABC, \cos x, |S|, \text{area}, and not \pi or \not
    r"(?:m?\\(?!(?:pi|sqrt|not|neg|lnot)(?![a-z]))[a-zA-Z]+ ?[a-zA-Z]*(?:\{[a-zA-Z]+\}|\([^()]*\))?"
    r"|(?:[a-z]|[A-Z]+)(?:_(?:[0-9a-zA-Z]|\{[^{}]*\}))?'*(?:\^\{-1\})?(?:\(-?[^()+-]*\))?"
    r"|\((?:[a-zA-Z](?:_[0-9a-zA-Z])?,)+[a-zA-Z](?:_[0-9a-zA-Z])?\)"
    r"|\\text\{[^{}]*\}|\|[A-Z]+\||\[[A-Z]+\])"
)
_ONLY_NAME = re.compile(_NAME)
_EQUALS = re.compile(r"=(?![^(]*\))")
NAMED = re.compile(rf"({_NAME})(?:=|\\in ?|\\equiv ?)([^=<>]+)")  # A name and its value, `x=5`


def is_equation(text: str) -> bool:
    """Whether a text says that some are equal, or nearly so."""
    return ("=" in text or r"\approx" in text) and parts_of(text) is None


def sides_of(equation: str) -> tuple[list[str], list[str]]:
    r"""Sides of `x=2^3=8\approx 8.0` without a name at an end, `2^3` and 8, and their rounded values."""
    exact, *rounded = (part.strip() for part in equation.split(r"\approx"))
    sides = _EQUALS.split(exact)
    if _ONLY_NAME.fullmatch(sides[0]):
        return (sides[1:], rounded) if len(sides) > 1 else (rounded[:1], rounded[1:])
    if len(sides) > 1 and _ONLY_NAME.fullmatch(sides[-1]):
        sides.pop()
    return sides, rounded


_Interval = tuple[str, str, str, str]  # left bracket, low, high, right bracket


def _written(interval: _Interval) -> str:
    return "{}{},{}{}".format(*interval)


def solutions(text: str) -> tuple[str, str] | None:
    """The variable of a normal text of inequalities, and the intervals in which they hold; None if it is none.

    Inequalities are joined by "or", "and" or commas. A comma is an "or": several solutions.
    """
    tokens = _JOINT.split(text)
    parts, joints = tokens[::2], tokens[1::2]
    variable, *others = {_variable(part) for part in parts}
    if variable is None or others:
        return None
    sets = [_intervals(part, variable) for part in parts]
    if r"\cap" in joints:
        if len(sets) > 2 or any(len(one) > 1 for one in sets):
            return None
        ((one,), (other,)) = sets  # must be bounded on different sides
        low, high = (one, other) if one[2] == r"\infty" else (other, one)
        if low[2] != r"\infty" or high[1] != r"-\infty":
            return None
        return variable, _written(low[:2] + high[2:])
    return variable, r"\cup ".join(_written(interval) for one in sets for interval in one)


def _sides(text: str) -> tuple[list[str], list[str]]:
    """What stands between the signs, and the signs."""
    tokens = [token.strip() for token in _SIGN.split(text)]
    return tokens[::2], tokens[1::2]


def _variable(text: str) -> str | None:
    """The variable that is alone on one side of a single inequality, or in the middle of two in one direction."""
    sides, signs = _sides(text)
    if len(signs) not in (1, 2) or "=" in signs or not all(sides):
        return None
    if len(signs) == 2:
        is_chain = {sign[:2] for sign in signs} in ({"<"}, {"\\l"}, {"<", "\\l"}, {">"}, {"\\g"}, {">", "\\g"})
        return sides[1] if is_chain and _VARIABLE.fullmatch(sides[1]) else None
    alone = [side for side in sides if _VARIABLE.fullmatch(side)]
    return alone[0] if len(alone) == 1 else None


def _intervals(text: str, variable: str) -> list[_Interval]:
    sides, signs = _sides(text)
    if len(signs) == 2:
        if signs[0] in (">", "\\geq"):
            sides, signs = sides[::-1], [_MIRRORED[sign] for sign in signs[::-1]]
        return [(_bracket(signs[0], "(["), sides[0], sides[2], _bracket(signs[1], ")]"))]
    sign, bound = (signs[0], sides[1]) if sides[0] == variable else (_MIRRORED[signs[0]], sides[0])
    below = ("(", r"-\infty", bound, _bracket(sign, ")]"))
    above = (_bracket(sign, "(["), bound, r"\infty", ")")
    return [below, above] if sign == "\\neq" else [below] if sign in ("<", "\\leq") else [above]


def _bracket(sign: str, brackets: str) -> str:
    return brackets[sign in ("\\leq", "\\geq")]
