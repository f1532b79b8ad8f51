"""Mathematical answers, read and compared by math-verify.

Covered: the last boxed answer of the solution, compared as mathematics with the accepted answers, or with all of
several answers in any order; tolerances between numbers. Not covered yet: units, and a hard deadline per answer.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from elastic_core.rewards.grade import Grade, GradeStatus, solution_of
from elastic_core.rewards.truth import MathTruth, split_answers

_BOXED = "\\boxed{"

# It warns in every call that it has no deadline of its own.
logging.getLogger("math_verify").setLevel(logging.ERROR)


def grade_math(response: str, truth: str) -> Grade:
    """Grade a response by its last boxed answer after the last think-end.

    Args:
        response: the model's whole text, think-end included as text; without one there is no credit.
        truth: an encoded `MathTruth`; one plain answer is its own text.

    Raises:
        ValueError: when the truth is not one.
    """
    solution = solution_of(response)
    if solution is None:
        return Grade(0.0, GradeStatus.TRUNCATED, None)
    answer = last_boxed(solution)
    if answer is None:
        return Grade(0.0, GradeStatus.NO_ANSWER, None)
    if _accepted(answer, MathTruth.decode(truth)):
        return Grade(1.0, GradeStatus.CORRECT, answer)
    return Grade(0.0, GradeStatus.WRONG, answer)


def last_boxed(text: str) -> str | None:
    r"""Content of the last complete \boxed{…}, nested braces honoured; None when there is none."""
    start = text.rfind(_BOXED)
    while start >= 0:
        depth = 1
        for end in range(start + len(_BOXED), len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                return text[start + len(_BOXED) : end].strip()
        start = text.rfind(_BOXED, 0, start)
    return None


def _accepted(answer: str, truth: MathTruth) -> bool:
    if truth.match == "any":
        return any(_close(answer, accepted, truth.tolerance) for accepted in truth.answers)
    given, wanted = split_answers(answer), list(truth.answers)
    for part in given:
        match = next((w for w in wanted if _close(part, w, truth.tolerance)), None)
        if match is None:
            return False
        wanted.remove(match)
    return not wanted


def _close(answer: str, accepted: str, tolerance: float | None) -> bool:
    if _equal(answer, accepted):
        return True
    if tolerance is None:
        return False
    try:
        return abs(float(answer) - float(accepted)) <= tolerance
    except ValueError:
        return False


# Answers repeat over samples and budgets, and parsing one takes milliseconds.
@lru_cache(maxsize=1 << 16)
def _equal(answer: str, truth: str) -> bool:
    from math_verify import verify

    gold, given = _parse(truth), _parse(answer)
    return bool(gold) and bool(given) and verify(gold, given, timeout_seconds=None)


@lru_cache(maxsize=1 << 14)
def _parse(answer: str) -> list[Any]:
    from math_verify import parse

    # math-verify's own deadlines are alarms, which work on the main thread only.
    return parse(f"${_BOXED}{answer}}}$", parsing_timeout=None)
