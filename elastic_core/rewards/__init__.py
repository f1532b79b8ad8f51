"""Grading, behind one entry point: `grade(kind, response, truth)`."""

from collections.abc import Callable

from elastic_core.rewards.grade import Grade, GradeStatus
from elastic_core.rewards.math import grade_math

_GRADERS: dict[str, Callable[[str, str], Grade]] = {"math": grade_math}

KINDS = tuple(_GRADERS)
"""Kinds that `grade` takes."""


def grade(kind: str, response: str, truth: str) -> Grade:
    """Grade one response (whole text, think-end included) against the right answer.

    Raises:
        ValueError: on an unknown kind, or a truth that is none of this kind.
    """
    if kind not in _GRADERS:
        raise ValueError(f'no grader "{kind}"; expected one of {", ".join(_GRADERS)}')
    return _GRADERS[kind](response, truth)


__all__ = ["KINDS", "Grade", "GradeStatus", "grade"]
