"""What grading returns."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class GradeStatus(StrEnum):
    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"  # a solution, but no answer could be read from it
    NO_SOLUTION = "no_solution"  # the thinking never ended


class Grade(NamedTuple):
    """Score in [0, 1], why, and the answer as read (None when there is none)."""

    score: float
    status: GradeStatus
    answer: str | None
