"""What an expression is mapped to in order to tell whether it equals another one (see `algebra`)."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from elastic_core.rewards.normal import number

SMALL_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
PRIME = 0x22B0B989F29DD0AB2F35E617E15D42F9
"""1 modulo 8 and modulo every small prime, which by quadratic reciprocity makes all of them squares."""

FUNCTIONS: dict[str, Callable[[complex], complex]] = {
    "\\sin": cmath.sin,
    "\\cos": cmath.cos,
    "\\tan": cmath.tan,
    "\\ln": cmath.log,
    "\\sinh": cmath.sinh,
    "\\cosh": cmath.cosh,
}


class Unreadable(Exception):
    """Not an expression of this kind, or one that can be read in two ways."""


class Image(NamedTuple):
    """An expression's images.

    Attributes:
        residue: modulo the prime.
        is_exact: whether another residue is another expression.
        point: its value where every variable has a certain value; not a number where that is too large.
        size: absolute value of the largest number on the way to `point`.
    """

    residue: int
    is_exact: bool
    point: complex
    size: float

    def plus(self, other: Image) -> Image:
        return self._joined(other, self.residue + other.residue, self.point + other.point)

    def times(self, other: Image) -> Image:
        return self._joined(other, self.residue * other.residue, self.point * other.point)

    def over(self, other: Image) -> Image:
        return self.times(other.power(-1))

    def power(self, exponent: int) -> Image:
        if exponent < 0 and self.residue == 0:
            raise Unreadable
        point = _or_nan(lambda: self.point**exponent)
        return Image(pow(self.residue, exponent, PRIME), self.is_exact, point, max(self.size, abs(point)))

    def raised(self, exponent: Image) -> Image:
        point = _or_nan(lambda: self.point**exponent.point)
        residue = _residue(f"power {self.residue} {exponent.residue}")
        return Image(residue, False, point, max(self.size, exponent.size, abs(point)))

    def applied(self, function: str) -> Image:
        point = _or_nan(lambda: FUNCTIONS[function](self.point))
        return Image(_residue(f"{function} {self.residue}"), False, point, max(self.size, abs(point)))

    def _joined(self, other: Image, residue: int, point: complex) -> Image:
        is_exact = self.is_exact and other.is_exact
        return Image(residue % PRIME, is_exact, point, max(self.size, other.size, abs(point)))


def _or_nan(value: Callable[[], complex]) -> complex:
    try:
        return value()
    except (ArithmeticError, ValueError):
        return complex("nan")


def _exact(residue: int, point: complex) -> Image:
    return Image(residue % PRIME, True, point, abs(point))


MINUS_ONE = _exact(-1, -1)


def rational(text: str) -> Image:
    read = number(text)
    if read is None or read.value.denominator % PRIME == 0:
        raise Unreadable
    over, under = read.value.numerator, read.value.denominator
    return _exact(over * pow(under, -1, PRIME), _or_nan(lambda: over / under))


def symbol(name: str) -> Image:
    if name == "i":
        return _exact(root_of_prime(-1), 1j)
    residue = _residue(name)
    constant = {"e": math.e, "\\pi": math.pi}.get(name)
    return _exact(residue, constant or 0.5 + residue / PRIME)


@lru_cache(maxsize=4096)
def _residue(name: str) -> int:
    """A residue that belongs to a name, the same in every process."""
    return int.from_bytes(blake2b(name.encode(), digest_size=32).digest(), "big") % PRIME


def root(text: str) -> Image:
    """The square root of a rational number of at least 0."""
    read = number(text)
    if read is None or read.value < 0:
        raise Unreadable
    over, under = _root_of_integer(read.value.numerator), _root_of_integer(read.value.denominator)
    return _exact(over * pow(under, -1, PRIME), _or_nan(lambda: math.sqrt(read.value)))


def _root_of_integer(value: int) -> int:
    root = 1 if value else 0
    for prime in SMALL_PRIMES:
        while value and value % prime == 0:
            root, value = root * root_of_prime(prime) % PRIME, value // prime
    if value > 1:
        raise Unreadable
    return root


@lru_cache(maxsize=64)
def root_of_prime(value: int) -> int:
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
