r"""Equality of algebraic expressions, decided in microseconds and without computer algebra.

Two expressions of integers, square roots, i, pi, e and variables, joined by `+ - * /` and whole powers, are mapped to
numbers modulo a large prime p: every variable (and pi and e, which no algebra relates) to a fixed random residue, the
square root of a rational number to one of its roots. This map is a ring homomorphism, since p is chosen so that -1 and
all primes below 100 are squares. Different images therefore prove that the expressions differ. Equal images of
different expressions have a chance of about their degree in 2^126 (Schwartz and Zippel), which is never.

Everything else is left to others by `None`: functions, other powers, and what can be read in two ways, such as f(x)
(a product?), 1/2x and 2\frac{1}{3}.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

from elastic_core.rewards.normal import number

SMALL_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
PRIME = 0x22B0B989F29DD0AB2F35E617E15D42F9
"""1 modulo 8 and modulo every small prime, which by quadratic reciprocity makes all of them squares."""
MAX_TOKENS = 300
MAX_DEPTH = 30
MAX_EXPONENT_DIGITS = 18

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"|(?P<symbol>(?:[a-zA-Z]|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|omega|phi|pi|rho|sigma|tau)(?![a-zA-Z]))"
    r"(?:_(?:[0-9a-zA-Z]|\{[0-9a-zA-Z]+\}))?)"
    r"|(?P<root>\\sqrt\{(?P<radicand>[^{}]*|\\frac\{[0-9]+\}\{[0-9]+\})\})"
    r"|(?P<mark>\\frac(?![a-zA-Z])|\\cdot(?![a-zA-Z])|[-+/^(){}\[\]]))"
)


class _Unreadable(Exception):
    """Not an expression of this kind, or one that can be read in two ways."""


def equal_expressions(one: str, other: str) -> bool | None:
    """Whether two normal texts are equal expressions; None when either is not of the kind that is decided here."""
    try:
        return _value(one) == _value(other)
    except _Unreadable:
        return None


@lru_cache(maxsize=4096)
def _value(text: str) -> int:
    reader = _Reader(_tokens(text))
    value = reader.sum(0)
    if reader.kind:
        raise _Unreadable
    return value


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or len(tokens) == MAX_TOKENS:
            raise _Unreadable
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
            raise _Unreadable
        self._at += 1
        return self._tokens[self._at - 1][1]

    def sum(self, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise _Unreadable
        total, sign = 0, 1
        if self.kind in ("+", "-"):
            sign = -1 if self.kind == "-" else 1
            self._next()
        while True:
            total += sign * self._product(depth)
            if self.kind not in ("+", "-"):
                return total % PRIME
            sign = -1 if self.kind == "-" else 1
            self._next()

    def _product(self, depth: int) -> int:
        value, before = self._power(depth), self._before()
        divided = False
        while True:
            if self.kind in ("\\cdot", "/"):
                divided = self.kind == "/"
                self._next()
                factor = self._power(depth)
                value = value * (_inverse(factor) if divided else factor) % PRIME
            elif self.kind in ("number", "symbol", "root", "\\frac", "(", "["):
                # 2\frac{1}{3} may be a sum, x(…) a function, 1/2x either way, and 2 3 a slip of the pen.
                if divided or self.kind == "number" or (before == "number" and self.kind == "\\frac"):
                    raise _Unreadable
                if before == "symbol" and self.kind in ("(", "["):
                    raise _Unreadable
                value = value * self._power(depth) % PRIME
            else:
                return value
            before = self._before()

    def _before(self) -> str:
        return self._tokens[self._at - 1][0]

    def _power(self, depth: int) -> int:
        base = self._atom(depth)
        if self.kind != "^":
            return base
        self._next()
        sign = 1
        if self.kind == "{":
            self._next()
            if self.kind == "-":
                self._next()
                sign = -1
            digits = self._next("number")
            self._next("}")
        else:
            digits = self._next("number")
            if len(digits) > 1:  # x^23 is x^2 3 in LaTeX
                raise _Unreadable
        if not digits.isdecimal() or len(digits) > MAX_EXPONENT_DIGITS:
            raise _Unreadable
        value = pow(base, int(digits), PRIME)
        return _inverse(value) if sign < 0 else value

    def _atom(self, depth: int) -> int:
        kind, text = self.kind, self._next()
        if kind == "number":
            return _rational(text)
        if kind == "symbol":
            return _root_of_prime(-1) if text == "i" else _residue(text)
        if kind == "root":
            return _root(text)
        if kind == "\\frac":
            return self._group("{", depth) * _inverse(self._group("{", depth)) % PRIME
        if kind in ("(", "[", "{"):
            self._at -= 1
            return self._group(kind, depth)
        raise _Unreadable

    def _group(self, opening: str, depth: int) -> int:
        self._next(opening)
        value = self.sum(depth + 1)
        self._next({"(": ")", "[": "]", "{": "}"}[opening])
        return value


def _inverse(value: int) -> int:
    if value % PRIME == 0:
        raise _Unreadable
    return pow(value, -1, PRIME)


def _rational(text: str) -> int:
    read = number(text)
    if read is None:
        raise _Unreadable
    return read.value.numerator * _inverse(read.value.denominator) % PRIME


def _residue(name: str) -> int:
    """A residue that belongs to a name, the same in every process."""
    return (
        int.from_bytes(blake2b(name.replace("{", "").replace("}", "").encode(), digest_size=32).digest(), "big") % PRIME
    )


def _root(text: str) -> int:
    """A square root of a rational number of at least 0."""
    read = number(text)
    if read is None or read.value < 0:
        raise _Unreadable
    return _root_of_integer(read.value.numerator) * _inverse(_root_of_integer(read.value.denominator)) % PRIME


def _root_of_integer(value: int) -> int:
    root = 1 if value else 0
    for prime in SMALL_PRIMES:
        while value and value % prime == 0:
            root, value = root * _root_of_prime(prime) % PRIME, value // prime
    if value > 1:
        raise _Unreadable
    return root


@lru_cache(maxsize=64)
def _root_of_prime(value: int) -> int:
    """A square root modulo the prime (Tonelli and Shanks); -1 has one as well."""
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    non_square = next(n for n in range(2, 10**4) if pow(n, (PRIME - 1) // 2, PRIME) == PRIME - 1)
    generator, root, rest = pow(non_square, odd, PRIME), pow(value, (odd + 1) // 2, PRIME), pow(value, odd, PRIME)
    while rest != 1:
        order = next(k for k in range(1, twos) if pow(rest, 2**k, PRIME) == 1)
        factor = pow(generator, 2 ** (twos - order - 1), PRIME)
        generator, twos = factor * factor % PRIME, order
        root, rest = root * factor % PRIME, rest * generator % PRIME
    return root
