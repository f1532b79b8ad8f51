r"""Equality of algebraic expressions, decided in microseconds and without computer algebra.

Two expressions of integers, square roots, i, pi, e and variables, joined by `+ - * /` and whole powers, are mapped to
numbers modulo a large prime p: every variable (and pi and e, which no algebra relates) to a fixed random residue, the
square root of a rational number to one of its roots. This map is a ring homomorphism, since p is chosen so that -1 and
all primes below 100 are squares. Different images therefore prove that the expressions differ. Equal images of
different expressions have a chance of about their degree in 2^126 (Schwartz and Zippel), which is never.

Functions and other powers are mapped to residues that belong to their name and to the image of their argument. Equal
images still prove equality, but different ones nothing, since sines and cosines are related. Then both expressions are
also evaluated at a fixed point in floating point, and what differs there by far more than rounding is different.

Everything else is left to others by `None`: what these do not decide, and what can be read in two ways, such as f(x)
(a product?), 1/2x and 2\frac{1}{3}.
"""

from __future__ import annotations

import re
from functools import lru_cache

from elastic_core.rewards.images import MINUS_ONE, Image, Unreadable, rational, root, symbol

MAX_TOKENS = 300
MAX_DEPTH = 30
MAX_EXPONENT_DIGITS = 18
FAR_FROM_ROUNDED = 1e-3
FAR = 1e-6
"""Difference, relative to the largest number on the way to a value, that no rounding explains."""

_ENDS_ARGUMENT = ("", "+", "-", ")", "]", "}")

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"|(?P<symbol>(?:[a-zA-Z]|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|omega|phi|pi|rho|sigma|tau)(?![a-zA-Z]))"
    r"(?:_(?:[0-9a-zA-Z]|\{[0-9a-zA-Z]+\}))?)"
    r"|(?P<root>\\sqrt\{(?P<radicand>[^{}]*|\\frac\{[0-9]+\}\{[0-9]+\})\})"
    r"|(?P<function>\\(?:sin|cos|tan|ln|sinh|cosh)(?![a-zA-Z]))"
    r"|(?P<mark>\\frac(?![a-zA-Z])|\\cdot(?![a-zA-Z])|[-+/^(){}\[\]]))"
)


def equal_expressions(one: str, other: str, *, is_rounded: bool = False) -> bool | None:
    """Whether two normal texts are equal expressions; None when that is not decided here.

    Args:
        is_rounded: one of them may be a decimal that stands for the other; then only far values are different.
    """
    try:
        first, second = _image(one), _image(other)
    except Unreadable:
        return None
    if first.residue == second.residue:
        return True
    scale = max(first.size, second.size) * (FAR_FROM_ROUNDED if is_rounded else FAR)
    is_far = abs(first.point - second.point) > scale  # not so if one is not a number
    return False if is_far or (first.is_exact and second.is_exact and not is_rounded) else None


@lru_cache(maxsize=4096)
def _image(text: str) -> Image:
    reader = _Reader(_tokens(text))
    value = reader.sum(0)
    if reader.kind:
        raise Unreadable
    return value


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or len(tokens) == MAX_TOKENS:
            raise Unreadable
        kind = match.lastgroup if match.lastgroup != "radicand" else "root"
        tokens.append((match["mark"], "") if match["mark"] else (str(kind), match["radicand"] or match[str(kind)]))
        at = match.end()
    return tokens


class _Reader:
    """Recursive descent: a sum of products of powers of atoms, all modulo the prime."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def kind(self) -> str:
        """Kind of the next token; "" at the end."""
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _next(self, expected: str | None = None) -> str:
        if not self.kind or (expected and self.kind != expected):
            raise Unreadable
        self._at += 1
        return self._tokens[self._at - 1][1]

    def sum(self, depth: int) -> Image:
        if depth > MAX_DEPTH:
            raise Unreadable
        total = rational("0")
        negative = self._sign()
        while True:
            product = self._product(depth)
            total = total.plus(product.times(MINUS_ONE) if negative else product)
            if self.kind not in ("+", "-"):
                return total
            negative = self._sign()

    def _sign(self) -> bool:
        """Read a sign, if there is one: whether it is a minus."""
        negative = self.kind == "-"
        if self.kind in ("+", "-"):
            self._next()
        return negative

    def _product(self, depth: int) -> Image:
        value, before = self._power(depth), self._before()
        divided = False
        while True:
            if self.kind in ("\\cdot", "/"):
                divided = self.kind == "/"
                self._next()
                factor = self._power(depth)
                value = value.over(factor) if divided else value.times(factor)
            elif self.kind in ("number", "symbol", "root", "function", "\\frac", "(", "["):
                # 2\frac{1}{3} may be a sum, x(…) a function, 1/2x either way, and 2 3 a slip of the pen.
                if divided or self.kind == "number" or (before == "number" and self.kind == "\\frac"):
                    raise Unreadable
                if before == "symbol" and self.kind in ("(", "["):
                    raise Unreadable
                value = value.times(self._power(depth))
            else:
                return value
            before = self._before()

    def _before(self) -> str:
        return self._tokens[self._at - 1][0]

    def _power(self, depth: int) -> Image:
        if self.kind == "function":
            return self._application(depth)
        base = self._atom(depth)
        if self.kind != "^":
            return base
        self._next()
        exponent = self._whole_exponent()
        return base.raised(self._group("{", depth)) if exponent is None else base.power(exponent)

    def _whole_exponent(self) -> int | None:
        """Read an exponent that is a whole number; None when it is another one, of which nothing is read."""
        start, braced = self._at, self.kind == "{"
        if braced:
            self._next()
        negative = braced and self._sign()
        if self.kind == "number":
            digits = self._next()
            is_whole = digits.isdecimal() and len(digits) <= MAX_EXPONENT_DIGITS
            if not braced and len(digits) == 1:  # x^23 is x^2 3 in LaTeX
                return int(digits)
            if braced and is_whole and self.kind == "}":
                self._next()
                return -int(digits) if negative else int(digits)
        self._at = start
        return None

    def _application(self, depth: int) -> Image:
        r"""A function and its argument, which has parentheses or is a product of numbers and variables: `\sin^2 2x`."""
        function, exponent = self._next(), 1
        if self.kind == "^":
            self._next()
            exponent = self._whole_exponent() or -1
        if exponent < 1:  # an inverse function, or a reciprocal
            raise Unreadable
        if self.kind == "(":
            argument = self._group("(", depth)
            if self.kind == "^":
                raise Unreadable
        else:
            argument = self._atom(depth) if self.kind in ("number", "symbol") else _unreadable()
            while self.kind == "symbol":
                argument = argument.times(self._atom(depth))
            if self.kind not in _ENDS_ARGUMENT:
                raise Unreadable
        return argument.applied(function).power(exponent)

    def _atom(self, depth: int) -> Image:
        kind, text = self.kind, self._next()
        if kind == "number":
            return rational(text)
        if kind == "symbol":
            return symbol(text.replace("{", "").replace("}", ""))
        if kind == "root":
            return root(text)
        if kind == "\\frac":
            return self._group("{", depth).over(self._group("{", depth))
        if kind in ("(", "[", "{"):
            self._at -= 1
            return self._group(kind, depth)
        raise Unreadable

    def _group(self, opening: str, depth: int) -> Image:
        self._next(opening)
        value = self.sum(depth + 1)
        self._next({"(": ")", "[": "]", "{": "}"}[opening])
        return value


def _unreadable() -> Image:
    raise Unreadable
