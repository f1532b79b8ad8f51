r"""Whether an answer is right, in three values: yes, no, and unknown without computer algebra.

Structure is compared here: units, tuples (ordered), sets and lists (not), intervals with their ends, matrices, `\pm`,
`x=5`. Pairs of expressions that are left go to a `Leaf`. The caller's process passes `undecided`, which
makes this cheap and bounded; a worker process passes computer algebra.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any

from elastic_core.rewards.math import structure
from elastic_core.rewards.math.normal import Number, normal, number
from elastic_core.rewards.math.structure import Group, bracketed, cells, is_equation, parts_of
from elastic_core.rewards.math.units import in_one_unit, split_unit, unit, without_unit
from elastic_core.rewards.truth import MathTruth

MAX_LENGTH = 2000
"""Characters of an answer that is parsed. None of the data sets' answers has more than 200, and a parser's time grows
faster than the text: a longer answer is right only when it is spelled as an accepted one."""
MAX_DEPTH = 6  # nested tuples and sets that are taken apart here
MAX_PARTS = 20  # parts of a list or set that are compared each with each; of more, only those spelled differently count
CLOSE_ENOUGH = Fraction(1, 10**6)
"""Relative difference up to which a decimal stands for an irrational number: 1.414214 for a root. A fraction stands for
an accepted 0.333333, and 0.333333 not for a third."""

Leaf = Callable[[str, str, float | None], bool | None]
"""Compares an answer with an accepted one, both normal, within a tolerance; None when it does not know."""

_COORDINATE = re.compile(r"[xyz] ?=")
_Named = tuple[str | Any, ...] | None
_Equal = Callable[[str, str], bool | None]


def undecided(answer: str, accepted: str, tolerance: float | None) -> bool | None:
    """The leaf that knows nothing."""
    return None


def accepts(answer: str, truth: MathTruth, leaf: Leaf) -> bool | None:
    """Whether the truth accepts an answer; None when that depends on an unknown verdict of the leaf."""
    if max(map(len, (answer.strip(), *truth.answers))) > MAX_LENGTH:
        return answer.strip() in truth.answers and (truth.match == "any" or len(truth.answers) == 1)
    text = normal(answer)
    if not text:
        return False

    def equal(part: str, accepted: str) -> bool | None:
        accepted = normal(accepted)
        if part == accepted:
            return True
        if truth.unit is None:
            return _equal(part, accepted, truth.tolerance, leaf)
        wanted = unit(truth.unit)
        part, given = without_unit(part, wanted)
        value, own = split_unit(accepted)
        pairs = in_one_unit(part, given, value if own == wanted else accepted, wanted)
        return _any(_equal(one, other, truth.tolerance, leaf) for one, other in pairs)

    if truth.match == "any":
        return _any(equal(text, accepted) for accepted in truth.answers)
    group = parts_of(text)
    parts = list(group.parts) if group and group.brackets in ("", "{}") else [text]
    readings = [parts, [text]] if number(text) and len(parts) > 1 else [parts]  # `1,200` may be two answers or one
    return _any(_matched(reading, truth.answers, equal) for reading in readings)


def _equal(answer: str, accepted: str, tolerance: float | None, leaf: Leaf, depth: int = 0) -> bool | None:
    """Whether two normal texts mean the same."""
    answer, accepted = _unwrapped(answer, depth), _unwrapped(accepted, depth)
    if depth < MAX_DEPTH and is_equation(answer) != is_equation(accepted):
        # Whether all sides of the one that is an equation are the other; of `\sqrt{2}\approx 1.4` the first, where the
        # second is the first rounded. `5=5` says nothing.
        sides, rounded = structure.sides_of(answer if is_equation(answer) else accepted)
        if len(set(sides)) < len(sides) or not all(map(number, rounded)):
            return False
        pairs = [(side, accepted) if is_equation(answer) else (answer, side) for side in sides]
        roundings = [(sides[-1], text, 0.5 * 10.0 ** -len(text.partition(".")[2])) for text in rounded]
        comparisons = [*((*pair, tolerance) for pair in pairs), *roundings]
        return _all(_equal(*each, leaf, depth + 1) for each in comparisons)
    if _is_list(answer) or _is_list(accepted):  # each of its parts has its unit
        return _equal_values(answer, accepted, tolerance, leaf, depth)
    accepted, wanted = split_unit(accepted)
    answer, given = without_unit(answer, wanted)
    pairs = in_one_unit(answer, given, accepted, wanted)
    return _any(_equal_values(one, other, tolerance, leaf, depth) for one, other in pairs)


def _is_list(text: str) -> bool:
    parts = parts_of(text)
    return parts is not None and parts.brackets == "" and number(split_unit(text)[0]) is None


def _equal_values(answer: str, accepted: str, tolerance: float | None, leaf: Leaf, depth: int) -> bool | None:
    """`_equal` without units."""
    # `x=5` as 5, unless the two are called differently, or the other is another equation: `2x+1=y`.
    named, other_named = structure.NAMED.fullmatch(answer), structure.NAMED.fullmatch(accepted)
    if bool(named) == bool(other_named) or "=" not in (accepted if named else answer):
        pair = named and named.group(1, 2), other_named and other_named.group(1, 2)
        answer, accepted = _values(answer, accepted, *pair)
    answer, accepted = _unwrapped(answer, depth), _unwrapped(accepted, depth)
    words = _equal_words(answer, accepted)
    if words is not None:
        return words
    first, second = number(answer), number(accepted)
    if first and second:
        if _close(first, second, tolerance):
            return True
        if "," not in answer + accepted:
            return False
    # Inequalities as intervals, where the other is intervals, or inequalities of the same variable.
    answer, accepted = _values(answer, accepted, structure.solutions(answer), structure.solutions(accepted))
    if depth < MAX_DEPTH:
        one, other = parts_of(answer), parts_of(accepted)
        if one and other:
            return _equal_groups(one, other, lambda a, b: _equal(a, b, tolerance, leaf, depth + 1))
        if (one and second) or (other and first):
            return False
    return leaf(answer, accepted, tolerance)


def _close(answer: Number, accepted: Number, tolerance: float | None) -> bool:
    difference = abs(answer.value - accepted.value)
    if difference == 0:
        return True
    if tolerance is not None:
        return difference <= Fraction(str(tolerance))
    under = answer.value.denominator
    if answer.is_decimal or not accepted.is_decimal or pow(10, under.bit_length(), under) == 0:  # a finite decimal
        return False
    return difference <= CLOSE_ENOUGH * abs(answer.value)


def _unwrapped(text: str, depth: int) -> str:
    r"""Remove brackets around a single thing: `(C)`, and `\text{…}` around it. A set in a set is not its element."""
    for _ in range(MAX_DEPTH if text.endswith((")", "]", "}")) else 0):
        if match := re.fullmatch(r"\\text\{\(([^{}()]*)\)\}", text):
            text = rf"\text{{{match[1]}}}"
        elif (group := bracketed(text)) and len(group.parts) == 1 and group.brackets in ("()", "{}", "[]"):
            if group.brackets == "{}" and (depth or group.parts[0].startswith((r"\emptyset", r"\{"))):
                break
            text = group.parts[0]
        else:
            break
    return text


def _values(answer: str, accepted: str, first: _Named, second: _Named) -> tuple[str, str]:
    """The values of texts that have a name and a value; not of two with different names."""
    if first and second and first[0] != second[0]:
        return answer, accepted
    return (first[1] if first else answer), (second[1] if second else accepted)


_WORDS = re.compile(r"\\text\{([^{}]*)\}")
_CAPITALS = re.compile(r"[A-Z]{2,}")
_LETTER = re.compile(r"(?:\\text\{)?([A-Z])\}?")
_CHOICE = re.compile(  # of `(C)\ 5` C
    r"(?:\\text\{)?(?:\(([A-Z])\)|([A-Z])[.):])\}?"
    r"(?:(?=[0-9a-z.]|\\(?:text|frac|sqrt|dollar|pi)(?![a-z]))(?!.*(?:\([A-Z]\)|,\(?[A-Z](?![a-zA-Z]))).*)?"
)
_LETTERS = re.compile(r"[a-zA-Z][a-zA-Z ,.'-]*")


def _equal_words(answer: str, accepted: str) -> bool | None:
    r"""Whether two words are the same, where at least one is marked as one by `\text`; None if they are not words."""
    if answer == accepted:
        return True
    for one, other in ((answer, accepted), (accepted, answer)):
        if (letter := _LETTER.fullmatch(one)) and (choice := _CHOICE.fullmatch(other)):
            return letter[1] == (choice[1] or choice[2])
    if _CAPITALS.fullmatch(answer) and _CAPITALS.fullmatch(accepted):  # points and words, not products
        return False
    first, second = _WORDS.fullmatch(answer), _WORDS.fullmatch(accepted)
    if not first and not second:
        return None
    one, other = (first[1] if first else answer).strip(), (second[1] if second else accepted).strip()
    if one == other:
        return True
    if not _LETTERS.fullmatch(one) or not _LETTERS.fullmatch(other):
        value, wanted = number(one), number(other)
        return _close(value, wanted, None) if value and wanted else None
    return len(one) > 1 and one.casefold() == other.casefold()


def _equal_groups(answer: Group, accepted: Group, equal: _Equal) -> bool | None:
    """Whether two groups have the same parts, in the same order where order matters.

    A bare list may stand for a tuple, and a tuple for a column or a row; only an interval for one with one of its ends.
    """
    kinds = {answer.brackets, accepted.brackets}
    if "matrix" in kinds:
        rows, wanted = cells(answer), cells(accepted)
        if kinds == {"matrix", "()"}:
            vector = rows if answer.brackets == "matrix" else wanted
            rows, wanted = [list(chain.from_iterable(rows))], [list(chain.from_iterable(wanted))]
            if min(len(vector), max(map(len, vector), default=0)) != 1:
                return False
        elif len(kinds) > 1:
            return False
        if [len(row) for row in rows] != [len(row) for row in wanted]:
            return False
        return _all(equal(a, b) for x, y in zip(rows, wanted, strict=True) for a, b in zip(x, y, strict=True))
    if kinds <= {"", "{}"}:
        return _matched(answer.parts, accepted.parts, equal)
    if len(answer.parts) != len(accepted.parts) or (len(kinds) > 1 and kinds != {"", "()"}):
        return False
    # The y=3,x=4 of a point is (4,3).
    ordered = (
        sorted(each.parts) if all(map(_COORDINATE.match, each.parts)) else each.parts for each in (answer, accepted)
    )
    return _all(equal(a, b) for a, b in zip(*ordered, strict=True))


def _any(verdicts: Iterable[bool | None], decisive: bool = True) -> bool | None:
    """The decisive verdict if it is among them, else None if one is unknown, else its opposite."""
    unknown = False
    for verdict in verdicts:
        if verdict is decisive:
            return verdict
        unknown |= verdict is None
    return None if unknown else not decisive


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    return _any(verdicts, decisive=False)


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
    """Whether rows and columns can be paired off in allowed pairs (augmenting paths)."""
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
