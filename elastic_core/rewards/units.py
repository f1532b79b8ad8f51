r"""Units of answers: `5 \text{ cm}`, `\$5`, `50\%`, `90^\circ`, and the base of `52_8`, left out like a unit."""

from __future__ import annotations

import re

from elastic_core.rewards.normal import normal, number

_NAMES = (
    "dollar dollars usd",
    "cent cents ¢",
    "% percent percentage",
    "degree degrees deg °",
    "in inch inches",
    "ft foot feet",
    "yd yard yards",
    "mi mile miles",
    "mm millimeter millimeters millimetre millimetres",
    "cm centimeter centimeters centimetre centimetres",
    "m meter meters metre metres",
    "km kilometer kilometers kilometre kilometres",
    "nm nanometer nanometers",
    "s sec secs second seconds",
    "min mins minute minutes",
    "h hr hrs hour hours",
    "day days",
    "week weeks",
    "month months",
    "yr year years",
    "g gram grams",
    "kg kilogram kilograms",
    "mg milligram milligrams",
    "lb lbs pound pounds",
    "oz ounce ounces",
    "L liter liters litre litres",
    "mL ml milliliter milliliters",
    "gal gallon gallons",
    "mph",
    "J joule joules",
    "W watt watts",
    "V volt volts",
    "A ampere amperes",
    "N newton newtons",
    "Pa pascal pascals",
    "Hz hertz",
    "K kelvin kelvins",
    "C",
    "eV",
    "mol mole moles",
    "rad radian radians",
    "unit units",
)
_CANONICAL = {name: line.split()[0] for line in _NAMES for name in line.split()}
_BASES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
]

_TEXT = r"\\text\{[^{}]*\}(?:\^(?:[0-9]|\{-?[0-9]\}))?"
_TRAILING = re.compile(rf"(?:(?:{_TEXT}|%|\\degree ?[CFK]?|\\dollar|/)\s*)+$")
_BARE = re.compile(r"(?<=[0-9.}])\s?([a-zA-Z][a-zA-Z/ ]*(?:\^[0-9])?(?:/[a-zA-Z]+(?:\^[0-9])?)?)$")
_BASE = re.compile(r"([0-9][0-9A-Z]*)_(?:([0-9]{1,2})|\{([0-9]{1,2})\}|\{?\\text\{([a-z]+)\}\}?)")
_LAST_WORD = re.compile(r"(.*[0-9.}])\s?([a-zA-Z][^0-9]*(?:\^[0-9])?)")
_POWERS = (
    (re.compile(r"\b(?:square|sq\.?) ([a-zA-Z]+)"), r"\1^2"),
    (re.compile(r"\b(?:cubic|cu\.?) ([a-zA-Z]+)"), r"\1^3"),
)


def split_unit(text: str) -> tuple[str, str]:
    """A normal text without its unit, and the unit in one spelling ("" when there is none).

    Words without `\\text` are a unit only after a number and when they are known as one: `2ab` is a product.
    """
    if match := _BASE.fullmatch(text):
        base = match[2] or match[3] or (str(_BASES.index(match[4])) if match[4] in _BASES else match[4])
        return match[1], f"base {base}"
    for prefix in (r"\dollar", r"-\dollar", r"+\dollar"):
        if text.startswith(prefix):
            return text[0].replace("\\", "") + text[len(prefix) :].lstrip(), "dollar"
    if (match := _TRAILING.search(text)) and match.start():
        name = unit(match[0])
        return (text[: match.start()].rstrip(), name) if name.count("%") <= 1 else (text, "")
    if (match := _BARE.search(text)) and number(text[: match.start()]) and _is_known(unit(match[1])):
        return text[: match.start()], unit(match[1])
    return text, ""


def without_unit(text: str, wanted: str) -> tuple[str, str]:
    """As `split_unit`, where a word after a number is also a unit when it is the wanted one."""
    value, given = split_unit(text)
    if given or not wanted:
        return value, given
    match = _LAST_WORD.fullmatch(text)
    return (match[1], wanted) if match and unit(match[2]) == wanted else (text, "")


def units_agree(given: str, wanted: str) -> bool:
    """Either may be left out, except that digits in a base are no answer where none is wanted."""
    if given.startswith("base ") and not wanted:
        return given == "base 10"
    if given and wanted and given.startswith("degree") and wanted.startswith("degree"):
        return given == wanted or "degree" in (given, wanted)
    return given == wanted or not given or not wanted


def unit(text: str) -> str:
    """A unit in one spelling: centimetres and `\\mathrm{cm}` are "cm"."""
    text = normal(text).replace("\\text{", " ").replace("}", " ").replace("{", "").replace("\\degree", "degree ")
    text = text.replace("\\", " ").replace(" per ", "/")
    for pattern, replacement in _POWERS:
        text = pattern.sub(replacement, text)
    text = re.sub(r"\s*([/^])\s*", r"\1", text.replace(".", " ")).strip()
    words = [_canonical(word) for word in re.findall(r"[^\s/^]+|[/^]", text)]
    return "".join(words)


def _canonical(word: str) -> str:
    if word in _CANONICAL:
        return _CANONICAL[word]
    lower = word.lower()
    # M is not m, but nobody means another unit by Inches.
    return _CANONICAL.get(lower, lower.removesuffix("s")) if len(word) > 3 else word


def _is_known(name: str) -> bool:
    """A single letter is a variable rather than a unit."""
    return len(name) > 1 and all(re.sub(r"\^[0-9]", "", part) in _CANONICAL.values() for part in name.split("/"))
