"""Compares what a program returned or printed with the expectation, which programs never see."""

from __future__ import annotations

import math
import re
from typing import Any

TOLERANCE = 1e-6  # absolute, and relative to the expected number where that is larger than 1

_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_IS_NUMBER = re.compile(_NUMBER).fullmatch
_IS_INTEGER = re.compile(rb"[+-]?[0-9]+").fullmatch
_HAS_FLOAT = re.compile(
    r"(?<![^\s,\[{:(])[+-]?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)(?![^\s,\]}):])"
).search
_MAX_DIGITS = 4300  # Python converts no more by default, as the time it takes grows with their square


def same_output(given: bytes, expected: str, *, floats: bool = False) -> bool:
    """Compare what was printed, token by token; tokens are separated by white space (ASCII), lines do not matter.

    An expected token that is a number with a point or an exponent is met by any number within `TOLERANCE` (1e-6,
    absolute or relative), and with `floats` an expected integer as well: `3.0` for `3`. Every other token must be the
    same bytes: integers, words, and nan or inf.
    """
    wanted = expected.encode("utf-8", "surrogatepass").split()
    tokens = given.split(maxsplit=len(wanted))  # of a flood of tokens no more than tell that it is one
    if len(tokens) != len(wanted):
        return False
    return all(token == want or _close_tokens(token, want, floats) for token, want in zip(tokens, wanted, strict=True))


def has_floats(expected: str) -> bool:
    """Whether a token of an expected output, or a number in JSON, is a float: then this problem means floats."""
    return _HAS_FLOAT(expected) is not None


def same_value(given: Any, expected: Any, *, floats: bool = False) -> bool:
    """Compare what a function returned (types of JSON, and tuples, which are lists) with a value of JSON, deeply.

    A number is met by a number of the same value, and by any within `TOLERANCE` (1e-6, absolute or relative) where the
    expected one is a float; NaN by NaN. True is not 1. With `floats`, an expected integer is met by any float within
    the tolerance.
    """
    if isinstance(expected, list):
        if not isinstance(given, list | tuple) or len(given) != len(expected):
            return False
        return all(same_value(*pair, floats=floats) for pair in zip(given, expected, strict=True))
    if isinstance(expected, dict):
        if not isinstance(given, dict) or given.keys() != expected.keys():
            return False
        return all(same_value(given[key], value, floats=floats) for key, value in expected.items())
    if isinstance(expected, bool) or isinstance(given, bool):
        return given is expected
    if isinstance(expected, float) or (floats and isinstance(expected, int) and isinstance(given, float)):
        return isinstance(given, int | float) and _close(given, expected)
    if isinstance(expected, int):
        return isinstance(given, int | float) and given == expected
    return type(given) is type(expected) and given == expected


def parse_int(digits: str) -> Any:
    """For `json.loads` of values to compare: integers of any length, the longest by their digits."""
    return int(digits) if len(digits) <= _MAX_DIGITS else (digits,)


def _close_tokens(token: bytes, want: bytes, floats: bool) -> bool:
    if not _IS_NUMBER(want) or not _IS_NUMBER(token):
        return False
    if _IS_INTEGER(want) and (not floats or _IS_INTEGER(token)):
        return False
    return _close(float(token), float(want))


def _close(given: float, expected: float) -> bool:
    if isinstance(expected, float) and not math.isfinite(expected):
        return given == expected or (math.isnan(expected) and given != given)
    try:
        return abs(given - expected) <= TOLERANCE * max(1.0, abs(expected))
    except OverflowError:  # an integer beyond the range of floats
        return False
