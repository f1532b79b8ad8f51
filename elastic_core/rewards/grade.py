"""What grading returns, what of a response counts, and the graders by kind of truth."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

THINK_END = "</think>"

ATTEMPTS = 5  # how often a grader that fails is tried before its failure is final
FIRST_WAIT = 1.0
"""Seconds before the second attempt, doubled before each further one: what else runs here may end meanwhile."""

MAX_SOLUTION = 1_000_000
"""Characters of a solution that are read, from its end. A solution of 32,768 tokens of text has about 130,000."""


class GradeStatus(StrEnum):
    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"  # no answer could be read from what the model ended by itself, or began as solution
    TRUNCATED = "truncated"  # cut before the thinking ended, so there is no solution
    TIMEOUT = "timeout"  # the program, or the comparison of the answer, took longer than it may
    RUNTIME_ERROR = "runtime_error"  # the program failed


UNANSWERED = (GradeStatus.NO_ANSWER, GradeStatus.TRUNCATED)  # of a response in which there is no answer to grade


class GradingFailed(RuntimeError):
    """The grader failed, not the response: nothing was scored, and another attempt may succeed."""


class Grade(NamedTuple):
    """Score in [0, 1], why, and the answer as read (None when there is none)."""

    score: float
    status: GradeStatus
    answer: str | None


Grader = Callable[[str, str], Grade]
"""Grades a solution against a truth; may raise ValueError for the truth, and GradingFailed."""

GRADERS: dict[str, Grader] = {}  # by kind of truth


def grader(kind: str) -> Callable[[Grader], Grader]:
    """Registers a grader: `@grader("math")`. `elastic_core.rewards` imports the module that has it."""

    def register(function: Grader) -> Grader:
        GRADERS[kind] = function
        return function

    return register


def graded(answer: str, is_right: bool) -> Grade:
    """The grade of an answer that is right or wrong."""
    return Grade(float(is_right), GradeStatus.CORRECT if is_right else GradeStatus.WRONG, answer)


NO_ANSWER = Grade(0.0, GradeStatus.NO_ANSWER, None)


def solution_of(response: str) -> str | None:
    """The text after the last think-end, at most its last `MAX_SOLUTION` characters, which bounds the time of graders
    without a deadline; None when the thinking never ended."""
    _, closed, solution = response.rpartition(THINK_END)
    return solution[-MAX_SOLUTION:] if closed else None
