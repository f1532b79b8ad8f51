r"""Answers as text: one spelling for what LaTeX spells in many ways, and the numbers among them, exactly.

Spelling only: `\dfrac12` becomes `\frac{1}{2}`, but nothing is computed. What is spelled here is at most
`compare.MAX_LENGTH` long, for which tests/unit/test_grading_time.py bounds the time.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

CACHE_SIZE = 1 << 12
"""Texts whose spelling is remembered: a right answer is compared with many others."""

_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("−–", "-"), **dict.fromkeys("×·*", r"\cdot "), **dict.fromkeys("\u00a0\u2009\u202f~", " "),
        "π": r"\pi ", "θ": r"\theta ", "∞": r"\infty ", "∅": r"\emptyset ", "°": r"\degree ", "∪": r"\cup ",
        "≤": r"\leq ", "≥": r"\geq ", "≠": r"\neq ", "±": r"\pm ", "÷": "/", "⟨": "(", "⟩": ")",
    }
)  # fmt: skip
_SUPERSCRIPTS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_VULGAR_FRACTIONS = re.compile("[¼½¾⅐-⅞]")

TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
"""A function of an angle, whose degree sign is not the answer's."""

_OR = r"(?:,\s*)?(?:\\text\s*\{\s*,?\s*or\s*\}|(?<![a-zA-Z\\])or(?![a-zA-Z])|\\(?:lor|vee)(?![a-zA-Z]))"
_AND = r"(?:,\s*)?(?:\\text\s*\{\s*,?\s*and\s*\}|(?<![a-zA-Z\\])and(?![a-zA-Z])|\\(?:land|wedge)(?![a-zA-Z]))"
_RELATION = re.compile(r"[<>]|\\(?:leq?|geq?|leqslant|geqslant|lt|gt)(?![a-zA-Z])")

_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\\\(?=[a-zA-Z])(?!.*\{[a-zA-Z]*(?:matrix|array)\})", r"\\"),  # a command escaped twice, as in JSON
        (r"\\\\", r"\\newline "),
        (r"\\\$", r"\\dollar "),
        (r"\$|\\[()](?![a-zA-Z])|\\!\s*", ""),  # a thin negative space joins digits: 10,\!080
        (r"\\(?:left|right|bigl|bigr|Bigl|Bigr|big|Big)(?![a-zA-Z])\s*\.?", ""),
        (r"\\(?:displaystyle|textstyle|limits|mathstrut|rm|bf|it)(?![a-zA-Z])", ""),
        (r",\\,(?=[0-9]{3}(?![0-9]))", ","),  # 10,\,080 is a number, 10, 80 are two
        (r"\\[,;:\s]|\\(?:quad|qquad)(?![a-zA-Z])", " "),
        (r"√\s*(?:\(([^()]*)\)|([0-9]+(?:\.[0-9]+)?|[a-zA-Z]))", r"\\sqrt{\1\2}"),
        (r"\\langle(?![a-zA-Z])", "("),
        (r"\\rangle(?![a-zA-Z])", ")"),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\(?:overline|bar|dot)\s*(?:\{([0-9]+)\}|([0-9]))", r"\\overline{\1\2}"),
        (r"\{,\}", ","),
        (r"\\[dtc]frac(?![a-z])", r"\\frac"),
        (r"\\[dt]binom(?![a-z])", r"\\binom"),
        (r"\\(?:mathrm|mathup|textrm|textbf|textit|textnormal|mbox|hbox|operatorname)(?![a-zA-Z])\s*\{", r"\\text{"),
        (r"\\(?:mathbf|mathit|boldsymbol|mathsf|vec|bm)\s*\{([a-zA-Z])\}", r"\1"),
        (rf"{_AND}|{_OR}", ","),
        (r"\\text\s*\{\s*\}", ""),
        (r"\\(?:times|ast)(?![a-zA-Z])", r"\\cdot "),
        (r"\\(?:le|leqslant)(?![a-zA-Z])", r"\\leq "),
        (r"\\(?:ge|geqslant)(?![a-zA-Z])", r"\\geq "),
        (r"\\ne(?![a-zA-Z])", r"\\neq "),
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset "),
        (r"\\(?:lbrace)(?![a-zA-Z])", r"\\{"),
        (r"\\(?:rbrace)(?![a-zA-Z])", r"\\}"),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degrees?(?![a-zA-Z])", r"\\degree "),
        (r"\\%|\\text\s*\{\s*percent\s*\}|(?<![a-zA-Z\\])percent(?![a-zA-Z])", "%"),
        (r"\\(frac|binom)\s*([0-9a-zA-Z])\s*([0-9a-zA-Z])", r"\\\1{\2}{\3}"),
        (r"\\(frac|binom)\s*([0-9a-zA-Z])\s*\{", r"\\\1{\2}{"),
        (r"(\\(?:frac|binom)\s*\{[^{}]*\})\s*([0-9a-zA-Z])", r"\1{\2}"),
        (r"\\sqrt\s*([0-9a-zA-Z])", r"\\sqrt{\1}"),
        (r"([_^])\s*\{\s*([0-9a-zA-Z])\s*\}", r"\1\2"),
        (r"\^\s*\{\s*\\prime\s*\\prime\s*\}", "''"),
        (r"\^\s*(?:\{\s*\\prime\s*\}|\\prime(?![a-zA-Z]))", "'"),
        (r"\s+", " "),
        # The space in 1, 234 tells two numbers from one.
        (r"(?<![a-zA-Z0-9])(?!(?<=[0-9],) [0-9]) | (?![a-zA-Z0-9])", ""),
        (r"(?<!\\)[.,;:]+$", ""),
    )
)

_NUMBER_AND_WORDS = re.compile(r"\\text\s*\{\s*([0-9][0-9.,]*)\s+([^{}0-9]+)\}")
_WORD_AND_MORE = re.compile(r"\\text\s*\{\s*(and|or)(?![a-zA-Z])\s*([^{}\s][^{}]*)\}")
_REPEATING = re.compile(r"([0-9]*)\.([0-9]*)\\overline\{([0-9]+)\}")
_DIGITS = r"(?:[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)|[0-9]+)"
_DECIMAL = rf"(?:{_DIGITS}\.?|\.(?=[0-9]))(?:(?<=\.)[0-9]+)?"
_POWER = r"10\^(?:(?P<short>[0-9])|\{(?P<long>[+-]?[0-9]{1,3})\})"
_SCIENTIFIC = re.compile(
    rf"(?P<mantissa>{_DECIMAL})(?:(?:\\cdot ?){_POWER}|[eE](?P<plain>[+-]?[0-9]{{1,3}}))?"
    rf"|{_POWER.replace('<', '<bare_')}"
)
_SIGNED = rf"[+-]?{_DECIMAL}"
_FRACTION = re.compile(
    rf"(?:(?P<whole>[0-9]+)(?: (?=[0-9])|(?=\\)))?"
    rf"(?:\\frac\{{(?P<over>{_SIGNED})\}}\{{(?P<under>{_SIGNED})\}}|(?P<above>{_DECIMAL})/(?P<below>{_SIGNED}))"
)


class Number(NamedTuple):
    """An exact value, and whether it is written as a decimal, which may stand for a value that no decimal has."""

    value: Fraction
    is_decimal: bool = False


@lru_cache(maxsize=CACHE_SIZE)
def normal(text: str) -> str:
    """One spelling of an answer. Spaces stay only where letters or digits would run together."""
    text = _VULGAR_FRACTIONS.sub(_vulgar, _SUPERSCRIPTS.sub(_power, text)).translate(_CHARACTERS)
    text = _NUMBER_AND_WORDS.sub(r"\1\\text{ \2}", text)
    text = _WORD_AND_MORE.sub(r"\\text{\1}\2", re.sub(r"(?<!\\)\\\s", " ", text)).strip()
    if _RELATION.search(text):  # `x<2 or x>3` is a union, and with "and" an intersection
        text = re.sub(_AND, r"\\cap ", re.sub(_OR, r"\\cup ", text))
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    return _without_braces(text)


def _power(match: re.Match[str]) -> str:
    return f"^{{{unicodedata.normalize('NFKC', match[0]).replace('−', '-')}}}"


def _vulgar(match: re.Match[str]) -> str:
    over, _, under = unicodedata.normalize("NFKC", match[0]).partition("⁄")
    return rf"\frac{{{over}}}{{{under}}}"


def _without_braces(text: str) -> str:
    """Without braces around all of it, a few times over."""
    for _ in range(4):
        if not (text.startswith("{") and text.endswith("}")):
            break
        depth = 0
        for at, brace in enumerate(text):
            depth += (brace == "{") - (brace == "}")
            if depth == 0 and at < len(text) - 1:
                return text
        text = text[1:-1].strip()
    return text


def number(text: str) -> Number | None:
    """The number that a normal text is: integers, decimals, also periodic ones, powers of ten, fractions and
    mixed numbers.

    Commas group digits where they can: `1,000` is a thousand. Of a million digits none is read, and no power of ten
    has more than three digits in its exponent.
    """
    sign = -1 if text.startswith("-") else 1
    text = text[1:] if text.startswith(("-", "+")) else text
    try:
        if match := _SCIENTIFIC.fullmatch(text):
            exponent = next(
                (part for part in match.group("short", "long", "plain", "bare_short", "bare_long") if part), "0"
            )
            mantissa = match["mantissa"] or "1"
            value = _decimal(mantissa) * Fraction(10) ** int(exponent)
            return Number(sign * value, "." in mantissa or exponent != "0")
        if match := _REPEATING.fullmatch(text):
            whole_digits, fixed, period = match.groups()
            first, all_digits = f"0{whole_digits}{fixed}", f"0{whole_digits}{fixed}{period}"
            under = (10 ** len(period) - 1) * 10 ** len(fixed)
            return Number(sign * Fraction(int(all_digits) - int(first), under))
        if match := _FRACTION.fullmatch(text):
            over, under = (_decimal(match[a] or match[b]) for a, b in (("over", "above"), ("under", "below")))
            whole = int(match["whole"] or 0)
            if whole and (over < 0 or under < 0):
                return None
            return Number(sign * (whole + over / under))
    except (ValueError, ZeroDivisionError):  # Python reads no integer of more than 4,300 digits
        return None
    return None


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace(",", "").replace(" ", "").removesuffix("."))
