r"""Answers as text: one spelling for what LaTeX spells in many ways, and the numbers among them, exactly.

Spelling only: `\dfrac12` becomes `\frac{1}{2}`, but nothing is computed. Texts here are at most
`compare.MAX_LENGTH` long, for which tests/unit/test_grading_time.py bounds the time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import NamedTuple

CACHE_SIZE = 1 << 12  # texts with a remembered spelling: a right answer is compared with many others

_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("−–", "-"), **dict.fromkeys("×·*", r"\cdot "), **dict.fromkeys("\u00a0\u2009\u202f~", " "),
        "π": r"\pi ", "θ": r"\theta ", "∞": r"\infty ", "∅": r"\emptyset ", "°": r"\degree ", "∪": r"\cup ",
        "≤": r"\leq ", "≥": r"\geq ", "≠": r"\neq ", "±": r"\pm ", "÷": "/", "⟨": "(", "⟩": ")",
        "≈": r"\approx ", "ℝ": r"\mathbb{R}", "∛": r"\sqrt[3]", "、": ",",
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # of full width
    }
)  # fmt: skip
_SUPERSCRIPTS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_VULGAR_FRACTIONS = re.compile("[¼½¾⅐-⅞]")

TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
"""A function of an angle, whose degree sign is not the answer's."""

_OR = r"(?:,\s*)?(?:\\text\s*\{\s*,?\s*or\s*\}|(?<![a-zA-Z\\])or(?![a-zA-Z])|\\(?:lor|vee)(?![a-zA-Z]))"
_AND = r"(?:,\s*)?(?:\\text\s*\{\s*,?\s*and\s*\}|(?<![a-zA-Z\\])and(?![a-zA-Z])|\\(?:land|wedge)(?![a-zA-Z]))"
_RELATION = re.compile(r"[<>]|\\(?:leq?|geq?|leqslant|geqslant|lt|gt)(?![a-zA-Z])")

_COMMANDS = {
    name: replacement
    for replacement, names in (
        ("", "displaystyle textstyle limits mathstrut rm bf it sf ensuremath checkmark"),
        ("", "tiny scriptsize footnotesize small normalsize large Large LARGE huge Huge"),
        (" ", "quad qquad"),
        ("(", "langle"),
        (")", "rangle"),
        ("<", "lt"),
        (">", "gt"),
        (r"\{", "lbrace"),
        (r"\}", "rbrace"),
        (r"\frac", "dfrac tfrac cfrac sfrac nicefrac"),
        (r"\binom", "dbinom tbinom"),
        (r"\text", "text mathrm mathup textrm textbf textit textsf textnormal mbox hbox operatorname emph"),
        (r"\cdot ", "times ast"),
        (r"\leq ", "le leqslant"),
        (r"\geq ", "ge geqslant"),
        (r"\neq ", "ne"),
        (r"\emptyset ", "varnothing"),
        (r"\degree ", "degrees"),
        (r"\pmod ", "mod"),
        (r"\bmod ", "bmod"),
        (r"\setminus ", "backslash smallsetminus"),
    )
    for name in names.split()
}
"""What is read for a command and the spaces after it."""

_POWERS_OF_TEN = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_STYLE = r"mathbf|mathit|mathsf|mathtt|boldsymbol|vec|bm(?!od)|underline|(?:text)?color(?:box)?\s*\{[a-zA-Z0-9!]*\}"
_ANSWER_IS = r"(?i:(?:the )?(?:final |correct )?(?:answer|option|choice)(?: is\b)?:?)"
_PLAIN_NAMES = "sqrt|pi|(?:arc)?(?:sin|cos|tan)|ln|log"  # of commands, without a backslash
_HOUR = r"(?<=:[0-9][0-9])\s*(?:\\text\{\s*)?"
_BOUNDS = r"[^][(),]+,[^][(),]+"

_TABLE: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\\\\(?=[a-zA-Z])(?!.*\{[a-zA-Z]*(?:matrix|array)\})", r"\\"),  # a command escaped twice, as in JSON
    (r"\\\\(?:\[[0-9.]+[a-z]{2}\])?|\\hline(?![a-z])", r"\\newline "),
    (r"\\\$", r"\\dollar "),
    (r"\$|\\[()](?![a-zA-Z])|\\!\s*", ""),  # a thin negative space joins digits: 10,\!080
    (r"\\(?:left|right|bigl|bigr|Bigl|Bigr|big|Big)(?![a-zA-Z])\s*\.?", ""),
    (r",\\,(?=[0-9]{3}(?![0-9]))", ","),  # 10,\,080 is a number, 10, 80 are two
    (r"\\[,;:\s]", " "),
    (rf"\\({'|'.join(_COMMANDS)})(?![a-zA-Z])\s*", lambda match: _COMMANDS[match[1]]),
    (r"\\text\{\s*([0-9][0-9.,:]*)\s+([^{}0-9]+)\}", r"\1\\text{ \2}"),
    (
        rf"(?<=[0-9}}])\s*(\\text\{{)?\s*({'|'.join(_POWERS_OF_TEN)})(?![a-zA-Z])(?(1)\s*(\}}?))",
        lambda match: rf"\cdot 10^{{{_POWERS_OF_TEN[match[2]]}}}" + (r"\text{" if match[1] and not match[3] else ""),
    ),
    (r"\\math(?:bf|bb)\s*(?:\{([NQRZ])\}|([NQRZ])(?![a-zA-Z]))", r"\\mathbb{\1\2}"),
    (r"\\(?:text|math(?:bf|it))(?:\{\s*([ei])\s*\}|([ei])(?![a-zA-Z]))", r"\1\2"),
    *[(rf"\\(?:{_STYLE})\s*(?:\{{([^{{}}]*(?:\{{[^{{}}]*\}}[^{{}}]*)*)\}}|([0-9a-zA-Z]))", r"\1\2")] * 2,
    (rf"^(\\text\{{)?\s*{_ANSWER_IS}\s*", r"\1"),
    (r"√\s*(?:\(([^()]*)\)|([0-9]+(?:\.[0-9]+)?|[a-zA-Z]))", r"\\sqrt{\1\2}"),
    (r"\\dot\s*\{?([0-9])\}?([0-9]*)\\dot\s*\{?([0-9])\}?", r"\\overline{\1\2\3}"),
    (r"\\(?:overline|bar|dot)\s*(?:\{([0-9]+)\}|([0-9]))", r"\\overline{\1\2}"),
    (r"^([+-]?[0-9]*\.[0-9]*)\(([0-9]+)\)$", r"\1\\overline{\2}"),
    (r"\{([,:])\}", r"\1"),
    (r"(?<!\\);", ", "),  # [0;1) where a comma is a decimal point
    (r"(?<=[0-9a-zA-Z)}])\s*\\cdot \\cdot \s*([0-9]+|[a-zA-Z])", r"^{\1}"),  # x**2
    (r"\^\s*(-(?:[0-9]+|[a-zA-Z]))", r"^{\1}"),  # 4.5*10^-7
    (rf"(?<![a-zA-Z\\])(?<!\\text\{{)({_PLAIN_NAMES})(?![a-zA-Z])", r"\\\1 "),
    (rf"{_AND}|{_OR}", ","),
    (r"\\text\{\s*\}", ""),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))", r"\\degree "),
    (r"\\%|\\text\{\s*per ?cent\s*\}|(?<![a-zA-Z\\])per ?cent(?![a-zA-Z])", "%"),
    (r"\\text\{\s*(?:\\dollar|USD)\s*([0-9.,]*)\}|^US(?:\\dollar|D(?=\s*[0-9]))", r"\\dollar \1"),
    (r"(?:\{([^{}]*)|^([^{}]*))\\choose(?![a-zA-Z])\s*(?:([^{}]*)\}|([^{}]*)$)", r"\\binom{\1\2}{\3\4}"),
    (r"(?:\{\}|(?<![0-9a-zA-Z)}\]]))[_^]\{?([0-9]+)\}?\s*(?:C|\\text\{C\})_\{?([0-9]+)\}?", r"\\binom{\1}{\2}"),
    (r"\\(frac|binom)\s*([0-9a-zA-Z])\s*([0-9a-zA-Z])", r"\\\1{\2}{\3}"),
    (r"\\(frac|binom)\s*([0-9a-zA-Z])\s*\{", r"\\\1{\2}{"),
    (r"(\\(?:frac|binom)\s*\{[^{}]*\})\s*([0-9a-zA-Z])", r"\1{\2}"),
    (r"\\frac\{\s*(\\text\{[^{}]*\})\s*\}\{\s*(\\text\{[^{}]*\}(?:\^[0-9])?)\s*\}", r"\1/\2"),
    (r"\\sqrt\s*(\[[^][]*\])?\s*(?:\(([^()]*)\)|([0-9a-zA-Z]|\\pi(?![a-z])))", r"\\sqrt\1{\2\3}"),
    (r"([_^])\s*\{\s*([0-9a-zA-Z])\s*\}(?![0-9])", r"\1\2"),
    (r"\^\s*\{\s*\\prime\s*\\prime\s*\}", "''"),
    (r"\^\s*(?:\{\s*\\prime\s*\}|\\prime(?![a-zA-Z]))", "'"),
    (rf"{_HOUR}[aA]\.?\s?[mM]\.?\s*\}}?$", r"\\text{AM}"),
    (rf"{_HOUR}[pP]\.?\s?[mM]\.?\s*\}}?$", r"\\text{PM}"),
    (r"(?:\\text\{\s*\(?|\(\s*(?:\\text\{)?)\s*\\?p?mod(?:ulo)?\s*\}?\s*\{?([0-9]+)\}?\s*\)?\}?$", r"\\pmod{\1}"),
    (r"\\pmod ([0-9]+)$", r"\\pmod{\1}"),
    (r">=", r"\\geq "),
    (r"<=", r"\\leq "),
    (r"\s+", " "),
    # The space in 1, 234 tells two numbers from one.
    (r"(?<![a-zA-Z0-9])(?!(?<=[0-9],) [0-9]) | (?![a-zA-Z0-9])", ""),
    (r"(?<![\\.,;:])(?![,;:]*\.\.)[.,;:]+$|(?<!\.)\.(?=\}$)", ""),  # not 1,2,...
    (r"(?<![0-9a-zA-Z)}\]])\+(?=\\infty)", ""),
    (rf"(^|\\cup|\\in|,)\]({_BOUNDS}[][])", r"\1(\2"),
    (rf"([(\[]{_BOUNDS})\[", r"\1)"),
    (r"[\[(]\\begin\{array\}\{[^{}]*\}(.*?)\\end\{array\}[)\]]", r"\\begin{pmatrix}\1\\end{pmatrix}"),
    (r"(?<=\\mathbb\{R\})-(?=\\\{)", r"\\setminus"),
    (r"^\\\{\\\}$", r"\\emptyset"),
    (r"^\\\{([a-zA-Z])(?:\\in\\mathbb\{R\})?(?:\\mid|:|\|) ?(.*(?<![a-zA-Z])\1(?![a-zA-Z]).*)\\\}$", r"\2"),
    (r"(^|\\in)\\mathbb\{R\}$", r"\1(-\\infty,\\infty)"),
)
_SPELLINGS = tuple((re.compile(pattern), replacement) for pattern, replacement in _TABLE)

_PHRASES = {
    phrase.replace(" ", ""): meaning
    for meaning, phrases in (
        (
            r"\emptyset",
            "empty set; the empty set; no solution; no solutions; no real solution; no real solutions;"
            "there is no solution; there are no solutions; there is no real solution; there are no real solutions",
        ),
        (r"(-\infty,\infty)", "all real numbers; all reals; all real x"),
        ("DNE", "does not exist; the limit does not exist; dne; d.n.e"),
        (r"\infty", "infinity"),
    )
    for phrase in phrases.split(";")
}
"""Sets and the like in words, without spaces."""
_DRESS = re.compile(r"\\text|[{} ]")

_PLAIN = re.compile(r"-?[0-9]+(?:\.[0-9]+)?|[a-zA-Z]|[0-9]+/[0-9]+")
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
    if _PLAIN.fullmatch(text):
        return text
    text = _SUPERSCRIPTS.sub(lambda match: f"^{{{_plain(match[0]).replace('−', '-')}}}", text)
    text = _VULGAR_FRACTIONS.sub(lambda match: r"\frac{{{}}}{{{}}}".format(*_plain(match[0]).split("⁄")), text)
    text = text.translate(_CHARACTERS)
    text = _WORD_AND_MORE.sub(r"\\text{\1}\2", re.sub(r"(?<!\\)\\\s", " ", text)).strip()
    if _RELATION.search(text):  # `x<2 or x>3` is a union, and with "and" an intersection
        text = re.sub(_AND, r"\\cap ", re.sub(_OR, r"\\cup ", text))
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    text = _without_braces(text)
    return _PHRASES.get(_DRESS.sub("", text).casefold(), text)


_plain = partial(unicodedata.normalize, "NFKC")


def _without_braces(text: str) -> str:
    """Remove braces around all of it, up to four pairs."""
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
    """The number that a normal text is: integers, decimals, periodic ones, powers of ten, fractions, mixed ones.

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
