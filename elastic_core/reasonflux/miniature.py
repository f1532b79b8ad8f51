"""The miniature's problems as a navigator sees them: the plan of a chain, and how its steps are divided.

A plan's words are those of the names in the miniature's library (`miniature.json`), which are searched by them.
Whatever is shown to the miniature, or written by it, is made of words that its tokenizer has tokens for.
"""

from __future__ import annotations

import re
from pathlib import Path

from elastic_core.reasonflux.plan import Plan

LIBRARY_FILE = Path(__file__).with_name("miniature.json")

_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven")
_MOST_EASY = 5
"""Operations of the longest easy problem."""
OPERATIONS_PER_STEP = 4


def plan_of(question: str) -> Plan:
    """The plan of a chain such as `36+6-4+8=?`, from its level, length and more frequent operation."""
    signs = re.findall(r"[+-](?=\d)", question)
    more_plus = signs.count("+") >= signs.count("-")
    return Plan(
        category="Easy chain" if len(signs) <= _MOST_EASY else "Hard chain",
        direction="more plus" if more_plus else "more minus",
        method=f"{_NUMBERS[min(max(len(signs) - 2, 0), len(_NUMBERS) - 1)]} steps",
        knowledge="+-" if more_plus else "-+",
        flow=",".join(map(str, divided(len(signs)))),
    )


def divided(num_operations: int) -> list[int]:
    """How many operations each step takes."""
    whole, rest = divmod(num_operations, OPERATIONS_PER_STEP)
    return [OPERATIONS_PER_STEP] * whole + [rest] * bool(rest)
