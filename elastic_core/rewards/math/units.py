r"""Units of answers: `5 \text{ cm}`, `\$5`, `50\%`, `90^\circ`, and the base of `52_8`, left out like a unit."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

from elastic_core.rewards.math.normal import TRIGONOMETRY, normal, number

_TABLE, _WORDS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split("\n\n")
"""A unit a line: names, the canonical one first, and its worth, where that is exact; then further words that
may follow a number as text: things that are counted, and units that are not converted."""
_LINES = [line.partition(" = ") for line in _TABLE.splitlines()]
_CANONICAL = {name: names.split()[0] for names, _, _ in _LINES for name in names.split()}
_WORTH = {names.split()[0]: worth.split() for names, _, worth in _LINES if worth}
_ANGLES = ("degree", "rad", "")
_SENTENCE_WORDS = (
    "or and is isn are aren was were be not no nor never none wrong false incorrect if unless when where for than to "
    "but except instead mod modulo hundred thousand million billion trillion dozen half more less fewer least most "
    "plus minus maybe undefined"
)
_NOT_UNITS = frozenset(_SENTENCE_WORDS.split())
"""Words that make of the text after an accepted number a sentence, or another number."""
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_BASES = _NUMBER_WORDS.split()

_TEXT = r"\\text\{(?:[^{}]|\{[^{}]*\})*\}(?:\^(?:[0-9]|\{-?[0-9]\}))?"
_PIECE = rf"{_TEXT}|%|\\dollar|/|(?<=\}})\\cdot ?(?=\\text)"
_TRAILING = re.compile(rf"(?:(?:{_PIECE}|\\degree ?[CFK]?)\s*)+$")
_TRAILING_BUT_DEGREES = re.compile(rf"(?:(?:{_PIECE})\s*)+$")
_BARE = re.compile(r"(?<=[0-9.}])\s?([a-zA-Z][a-zA-Z/ ]*(?:\^[0-9])?(?:/[a-zA-Z]+(?:\^[0-9])?)?)$")
_BASE = re.compile(
    r"(?:[({]|\\(?:text|overline)\{)?([0-9][0-9a-zA-Z]*|[a-zA-Z][0-9a-zA-Z]+)[)}]?_"
    r"(?:([0-9]{1,2})|\{([0-9]{1,2})\}|\{?\\text\{([a-z]+)\}\}?)"
)
_MODULUS = re.compile(r"(.+?)(\\pmod\{[0-9]+\})")
_REMAINDER = re.compile(r"(-?[0-9]+)\\bmod ?\{?(0*[1-9][0-9]*)\}?")
_QUANTITY = re.compile(r" *([0-9]+(?:\.[0-9]+)?) *([a-zA-Z]+) *,?")
_PART = re.compile(r"(/?)([^/^]+)(?:\^(-?[0-9]))?")
_UNIT_TEXT = re.compile(r"(?:[^0-9,;:=<>+]|\^\{?-?[0-9])*")
_MAX_WORDS = 4
_LAST_WORD = re.compile(r"(.*[0-9.}])\s?([a-zA-Z][^0-9]*(?:\^[0-9])?)")
_POWERS = (
    (re.compile(r"\bsq(?:uare |\.| )([a-zA-Z]+)"), r"\1^2"),
    (re.compile(r"\bcu(?:bic |\.| )([a-zA-Z]+)"), r"\1^3"),
    (re.compile(r"([a-zA-Z]+) squared\b"), r"\1^2"),
    (re.compile(r"([a-zA-Z]+) cubed\b"), r"\1^3"),
)


def split_unit(text: str, wanted: str | None = None) -> tuple[str, str]:
    """A normal text without its unit, and the unit in one spelling ("" when there is none).

    Words in `\\text` are the unit of an accepted answer unless they make a sentence of it. They are that of an answer
    when they are known, or the one that is `wanted` ("" for none): 46 squared is not 46. Words without `\\text` are a
    unit only after a number and when they are known as one: `2ab` is a product.
    """
    if match := _BASE.fullmatch(text):
        base = match[2] or match[3] or (str(_BASES.index(match[4])) if match[4] in _BASES else match[4])
        if match[1].isdecimal():
            return match[1], f"base {base}"
        if base.isdecimal() and 2 <= int(base) <= 36 and all(int(digit, 36) < int(base) for digit in match[1]):
            return rf"\text{{{match[1].upper()}}}", f"base {base}"
    if match := _MODULUS.fullmatch(text):
        return match[1], match[2]
    if match := _REMAINDER.fullmatch(text):
        return str(int(match[1]) % int(match[2])), rf"\pmod{{{int(match[2])}}}"
    if total := _sum(text):
        return total
    for prefix in (r"\dollar", r"-\dollar", r"+\dollar"):
        if text.startswith(prefix):
            return text[0].replace("\\", "") + text[len(prefix) :].lstrip(), "dollar"
    # The degree of `\cos 60^\circ` belongs to the angle.
    trailing = _TRAILING_BUT_DEGREES if TRIGONOMETRY.search(text) else _TRAILING
    if (match := trailing.search(text)) and match.start():
        name = unit(match[0])
        words = [word.lower() for word in re.findall(r"[a-zA-Z]+", match[0].replace(r"\text", " "))]
        is_unit = name.count("%") <= 1 and not name.endswith("/") and len(words) <= _MAX_WORDS
        is_unit = is_unit and _NOT_UNITS.isdisjoint(words) and bool(_UNIT_TEXT.fullmatch(match[0]))
        is_unit = is_unit and (wanted is None or name == wanted or _is_known(name))
        return (text[: match.start()].rstrip(), name) if is_unit else (text, "")
    if (match := _BARE.search(text)) and number(text[: match.start()]):
        name = unit(match[1])
        # A single letter is a variable rather than a unit.
        if len(name) > 1 and all(re.sub(r"\^[0-9]", "", part) in _CANONICAL.values() for part in name.split("/")):
            return text[: match.start()], name
    return text, ""


def _sum(text: str) -> tuple[str, str] | None:
    r"""`1\text{ h }30\text{ min}` in the last of its units; None unless it is a sum of ever smaller units."""
    plain = text.replace(r"\text{", " ").replace("}", " ")
    quantities = _QUANTITY.findall(plain)
    if len(quantities) < 2 or _QUANTITY.sub("", plain).strip():
        return None
    worths = [_worth(unit(name)) for _, name in quantities]
    total, smaller = Fraction(0), None
    for (amount, _), worth in zip(quantities, worths, strict=True):
        if worth is None or (smaller is not None and (worth[1] != smaller[1] or worth[0] >= smaller[0])):
            return None
        total, smaller = total + Fraction(amount) * worth[0], worth
    assert smaller is not None
    return _fraction(total / smaller[0]), unit(quantities[-1][1])


def without_unit(text: str, wanted: str) -> tuple[str, str]:
    """`split_unit`, where a word after a number is also a unit when it is the wanted one."""
    value, given = split_unit(text, wanted)
    if given or not wanted:
        return value, given
    match = _LAST_WORD.fullmatch(text)
    return (match[1], wanted) if match and unit(match[2]) == wanted else (text, "")


def in_one_unit(answer: str, given: str, accepted: str, wanted: str) -> list[tuple[str, str]]:
    r"""How an answer and an accepted one may be compared without their units; none if these exclude each other.

    Either unit may be left out, but digits in a base are wrong where no base is wanted. A per cent sign that is not
    wanted is the unit of a number above 1 (50% for 50), else a hundredth (50% for 0.5). A bare angle with \pi is in
    radians.
    """
    same = [(answer, accepted)]
    if given == wanted:
        return same
    if given.startswith(r"\pmod") and not wanted:
        # Of a class one of the smallest members is named: 46 is not 46 modulo 45.
        value = number(accepted)
        return same if value is None or abs(value.value) < int(given[6:-1]) else []
    if given.startswith("base "):
        return same if given == "base 10" and not wanted else []
    if given == "%":
        if wanted:
            return []
        value = number(accepted)
        is_left_out = value is not None and abs(value.value) > 1 and not re.search(r"/|\\frac", accepted)
        return same if is_left_out else [(_times(answer, Fraction(1, 100)), accepted)]
    if wanted == "%":
        return [] if given else [*same, (answer, _times(accepted, Fraction(1, 100)))]
    if given in _ANGLES and wanted in _ANGLES:
        if given == "degree" and (wanted or r"\pi" in accepted):
            return [(rf"\frac{{\pi}}{{180}}\cdot({answer})", accepted)]
        if wanted == "degree" and (given or r"\pi" in answer):
            return [(answer, rf"\frac{{\pi}}{{180}}\cdot({accepted})")]
        return same
    # Of temperatures `\degree C` is more exact than a degree.
    if given.startswith("degree") and wanted.startswith("degree"):
        return same if "degree" in (given, wanted) else []
    if not given or not wanted:
        return same
    ours, theirs = _worth(given), _worth(wanted)
    return [(_times(answer, ours[0] / theirs[0]), accepted)] if ours and theirs and ours[1] == theirs[1] else []


def _times(text: str, factor: Fraction) -> str:
    """A normal text, multiplied."""
    value = number(text)
    return rf"{_fraction(factor)}\cdot({text})" if value is None else _fraction(value.value * factor)


def _fraction(value: Fraction) -> str:
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _worth(name: str) -> tuple[Fraction, Counter[str]] | None:
    """What one of a unit is, and the units without other worth that this is in, with their powers; None if unknown."""
    factor, powers = Fraction(1), Counter[str]()
    above, _, below = name.partition("/")
    for part in (*above.split(), *(f"/{part}" for part in below.split())):
        match = _PART.fullmatch(part)
        if match is None or match[2] not in _CANONICAL:
            return None
        exponent = int(match[3] or 1) * (-1 if match[1] else 1)
        amount, base = _WORTH.get(match[2], ("1", ""))
        inner = _worth(base) if base else (Fraction(1), Counter({match[2]: 1}))
        assert inner is not None
        factor *= (Fraction(amount) * inner[0]) ** exponent
        for unit_of_base, power in inner[1].items():
            powers[unit_of_base] += power * exponent
    return factor, powers


def unit(text: str) -> str:
    """A unit in one spelling: centimetres and `\\mathrm{cm}` are "cm"."""
    text = normal(text).replace("\\text{", " ").replace("}", " ").replace("{", "").replace("\\degree", "degree ")
    text = text.replace("\\cdot", " ")
    text = text.replace("\\", " ").replace(" per ", "/")
    for pattern, replacement in _POWERS:
        text = pattern.sub(replacement, text)
    text = re.sub(r"\s*([/^])\s*", r"\1", text.replace(".", " ")).strip()
    words = [_one_word(word) for word in re.findall(r"[^\s/^]+|[/^]", text)]
    return re.sub(r" ?([/^]) ?", r"\1", " ".join(words))


def _one_word(word: str) -> str:
    lower = word.lower()
    # M is not m, but Inches means no other unit.
    other = _CANONICAL.get(lower, lower.removesuffix("s")) if len(word) > 3 else word
    return _CANONICAL.get(word, other)


_KNOWN = frozenset(map(_one_word, (*_CANONICAL, *_WORDS.split())))


def _is_known(name: str) -> bool:
    return _KNOWN.issuperset(re.sub(r"\^-?[0-9]|/", " ", name).split())
