r"""Whether an answer is right, in three values: yes, no, and unknown without computer algebra.

Structure is compared here: units, tuples (ordered), sets and lists (not), intervals with their ends, matrices, `\pm`,
`x=5`. What is left, two expressions at a time, goes to a `Leaf`. The caller's own process passes `undecided`, which
makes this cheap and bounded; a worker process passes computer algebra.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from elastic_core.rewards.algebra import equal_expressions
from elastic_core.rewards.normal import Number, normal, number
from elastic_core.rewards.truth import MathTruth, split_answers
from elastic_core.rewards.units import split_unit, unit, units_agree, without_unit

MAX_LENGTH = 2000
"""Characters of an answer that is parsed. None of the data sets' answers has more than 200, and a parser's time grows
faster than the text: a longer answer is right only when it is spelled as an accepted one."""
MAX_DEPTH = 6
"""Nested tuples and sets that are taken apart here."""
MAX_PARTS = 20
"""Parts of a list or set that are compared each with each; of more, only those spelled differently count."""
CLOSE_ENOUGH = Fraction(1, 10**6)
"""Relative difference up to which a decimal stands for a number that no decimal equals: 0.333333 for a third."""

Leaf = Callable[[str, str, float | None], bool | None]
"""Compares an answer with an accepted one, both normal, within a tolerance; None when it does not know."""

_Equal = Callable[[str, str], bool | None]


def undecided(answer: str, accepted: str, tolerance: float | None) -> bool | None:
    """The leaf that knows nothing."""
    return None


def accepts(answer: str, truth: MathTruth, leaf: Leaf) -> bool | None:
    """Whether the truth accepts an answer; None when that depends on what the leaf does not know."""
    if max(map(len, (answer.strip(), *truth.answers))) > MAX_LENGTH:
        return answer.strip() in truth.answers and (truth.match == "any" or len(truth.answers) == 1)
    text = normal(answer)
    if not text:
        return False

    def equal(part: str, accepted: str) -> bool | None:
        return _equal_quantity(part, normal(accepted), truth, leaf)

    if truth.match == "any":
        return _any(equal(text, accepted) for accepted in truth.answers)
    return _any(_matched(parts, truth.answers, equal) for parts in _readings(text))


def _readings(text: str) -> list[list[str]]:
    """The answers that a text gives; `1,200` may be two or one."""
    group = _group(text)
    parts = list(group.parts) if group and group.brackets in ("", "{}") else [text]
    return [parts, [text]] if number(text) and len(parts) > 1 else [parts]


def _equal_quantity(text: str, accepted: str, truth: MathTruth, leaf: Leaf) -> bool | None:
    if text == accepted:
        return True
    if truth.unit:
        wanted = unit(truth.unit)
        text, given = without_unit(text, wanted)
        if given not in ("", wanted):
            return False
        value, own = split_unit(accepted)
        accepted = value if own == wanted else accepted
    return _equal(text, accepted, truth.tolerance, leaf)


def _equal(answer: str, accepted: str, tolerance: float | None, leaf: Leaf, depth: int = 0) -> bool | None:
    """Whether two normal texts mean the same."""
    accepted, wanted = split_unit(accepted)
    answer, given = without_unit(answer, wanted)
    if not units_agree(given, wanted):
        return False
    answer, accepted = _without_names(_unwrapped(answer), _unwrapped(accepted))
    words = _equal_words(answer, accepted)
    if words is not None:
        return words
    first, second = number(answer), number(accepted)
    if first and second:
        if _close(first, second, tolerance) or ((given == "%") != (wanted == "%") and _percent(first, second, given)):
            return True
        if "," not in answer + accepted:
            return False
    if depth < MAX_DEPTH:
        one, other = _group(answer), _group(accepted)
        if one and other:
            return _equal_groups(one, other, lambda a, b: _equal(a, b, tolerance, leaf, depth + 1))
        if (one and second) or (other and first):
            return False
    return _equal_expressions(answer, accepted, tolerance, leaf)


def _equal_expressions(answer: str, accepted: str, tolerance: float | None, leaf: Leaf) -> bool | None:
    # What differs may still be within the tolerance, or be a decimal that stands for a root.
    equal = equal_expressions(answer, accepted, is_rounded="." in answer + accepted)
    if equal or (equal is False and tolerance is None):
        return equal
    return leaf(answer, accepted, tolerance)


def _close(answer: Number, accepted: Number, tolerance: float | None) -> bool:
    difference = abs(answer.value - accepted.value)
    if difference == 0:
        return True
    if tolerance is not None:
        return difference <= Fraction(str(tolerance))
    exact = accepted if answer.is_decimal else answer
    if answer.is_decimal == accepted.is_decimal or _is_finite_decimal(exact.value):
        return False
    return difference <= CLOSE_ENOUGH * abs(exact.value)


def _is_finite_decimal(value: Fraction) -> bool:
    return pow(10, value.denominator.bit_length(), value.denominator) == 0


def _percent(answer: Number, accepted: Number, given: str) -> bool:
    """One of the two is in percent: 50% is a half."""
    return answer.value == accepted.value * 100 if given == "%" else answer.value * 100 == accepted.value


def _unwrapped(text: str) -> str:
    r"""Without the brackets around a single thing: `(C)`, and `\text{…}` around all of it."""
    for _ in range(MAX_DEPTH):
        if match := re.fullmatch(r"\\text\{\(([^{}()]*)\)\}", text):
            text = rf"\text{{{match[1]}}}"
        elif (group := _bracketed(text)) and len(group.parts) == 1 and group.brackets in ("()", "{}", "[]"):
            text = group.parts[0]
        else:
            break
    return text


_NAME = re.compile(r"([a-zA-Z](?:_(?:[0-9a-zA-Z]|\{[^{}]*\}))?'?(?:\([a-z]\))?|\\[a-zA-Z]+)(?:=|\\in ?)([^=<>]+)")


def _without_names(answer: str, accepted: str) -> tuple[str, str]:
    """`x=5` as 5, unless the two are called differently."""
    first, second = _NAME.fullmatch(answer), _NAME.fullmatch(accepted)
    if first and second and first[1] != second[1]:
        return answer, accepted
    return (first[2] if first else answer), (second[2] if second else accepted)


_WORDS = re.compile(r"\\text\{([^{}]*)\}")
_LETTERS = re.compile(r"[a-zA-Z][a-zA-Z ,.'-]*")


def _equal_words(answer: str, accepted: str) -> bool | None:
    r"""Whether two words are the same, where at least one is marked as one by `\text`; None if they are not words."""
    if answer == accepted:
        return True
    first, second = _WORDS.fullmatch(answer), _WORDS.fullmatch(accepted)
    if not first and not second:
        return None
    one, other = (first[1] if first else answer).strip(), (second[1] if second else accepted).strip()
    if one == other:
        return True
    if not _LETTERS.fullmatch(one) or not _LETTERS.fullmatch(other):
        return _equal_numbers(one, other)
    return len(one) > 1 and one.casefold() == other.casefold()


def _equal_numbers(one: str, other: str) -> bool | None:
    first, second = number(one), number(other)
    return _close(first, second, None) if first and second else None


class _Group(NamedTuple):
    """Parts in brackets, "" for a bare list and "{}" for a set; of a matrix the rows, whose parts are cells."""

    brackets: str
    parts: tuple[str, ...]


_MATRIX = re.compile(r"\\begin\{([pbB]?matrix)\}(.*)\\end\{\1\}", re.DOTALL)


def _group(text: str) -> _Group | None:
    if match := _MATRIX.fullmatch(text):
        rows = match[2].split(r"\newline")
        return _Group("matrix", tuple(row.strip() for row in rows if row.strip()))
    group = _bracketed(text)
    if group is None:
        parts = _expanded(split_answers(text))
        return _Group("", parts) if len(parts) > 1 else None
    return group._replace(parts=_expanded(group.parts)) if group.brackets == "{}" else group


def _bracketed(text: str) -> _Group | None:
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
    return _Group(brackets, tuple(split_answers(inner))) if depth == 0 else None


def _expanded(parts: Iterable[str]) -> tuple[str, ...]:
    r"""Two answers for each `\pm`."""
    result: list[str] = []
    for part in parts:
        if r"\pm" in part and not _bracketed(part):
            result += (
                part.replace(r"\pm", "+").replace(r"\mp", "-").removeprefix("+").strip(),
                part.replace(r"\pm", "-").replace(r"\mp", "+").strip(),
            )
        else:
            result.append(part)
    return tuple(result)


def _equal_groups(answer: _Group, accepted: _Group, equal: _Equal) -> bool | None:
    """Whether two groups have the same parts, in the same order where order matters."""
    kinds = {answer.brackets, accepted.brackets}
    if "matrix" in kinds:
        if len(kinds) > 1:
            return False
        cells = [[row.split("&") for row in group.parts] for group in (answer, accepted)]
        if [len(row) for row in cells[0]] != [len(row) for row in cells[1]]:
            return False
        return _all(equal(a.strip(), b.strip()) for x, y in zip(*cells, strict=True) for a, b in zip(x, y, strict=True))
    if kinds <= {"", "{}"}:
        return _matched(answer.parts, accepted.parts, equal)
    if len(answer.parts) != len(accepted.parts) or "{}" in kinds or (len(kinds) > 1 and "" not in kinds):
        return False
    return _all(equal(a, b) for a, b in zip(answer.parts, accepted.parts, strict=True))


def _any(verdicts: Iterable[bool | None]) -> bool | None:
    unknown = False
    for verdict in verdicts:
        if verdict:
            return True
        unknown |= verdict is None
    return None if unknown else False


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    unknown = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unknown |= verdict is None
    return None if unknown else True


def _matched(answers: Sequence[str], accepted: Sequence[str], equal: _Equal) -> bool | None:
    """Whether the answers are the accepted ones in some order, each once."""
    if len(answers) != len(accepted):
        return False
    left, right = Counter(answers), Counter(accepted)
    rest, wanted = list((left - right).elements()), list((right - left).elements())
    if len(rest) > MAX_PARTS:
        return None
    verdicts = [[equal(answer, other) for other in wanted] for answer in rest]
    if _has_pairing([[verdict is True for verdict in row] for row in verdicts]):
        return True
    return None if _has_pairing([[verdict is not False for verdict in row] for row in verdicts]) else False


def _has_pairing(allowed: list[list[bool]]) -> bool:
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
