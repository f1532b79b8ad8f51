"""The miniature's problems in the words by which its library (`miniature.json`) is searched.

The names in that library are words for this search. All other texts are made of words that the miniature's tokenizer
has tokens for, as it may be trained on them: there "4" stands for so many operations, "maximum +" for more + than -.
"""

from __future__ import annotations

import re
from pathlib import Path

LIBRARY_FILE = Path(__file__).with_name("miniature.json")

_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven")
_MOST_EASY = 5
"""Operations of the longest easy problem."""


def describe(question: str) -> str:
    """What a navigator would say of a chain such as `36+6-4+8=?`: its level, length and more frequent operation."""
    signs = re.findall(r"[+-](?=\d)", question)
    level = "Easy" if len(signs) <= _MOST_EASY else "Hard"
    length = _NUMBERS[min(max(len(signs) - 2, 0), len(_NUMBERS) - 1)]
    more = "plus" if signs.count("+") >= signs.count("-") else "minus"
    return f"{level} chain of {length} steps, more {more}"
