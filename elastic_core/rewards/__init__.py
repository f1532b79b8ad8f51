"""Grading, behind one entry point: `grade(kind, response, truth)`, and `grade_many` for batches.

A new kind of truth is a function `(solution, truth) -> Grade` under `@grader(kind)`, imported here; `code` and `math`
bring that of choices, in `response`, along.

A grade is about the response. When the grader itself fails, it tries again after a pause, and if that does not help it
raises: a response is never scored 0 because a machine was out of memory or processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os import cpu_count
from typing import Any, NamedTuple, TypeVar

from elastic_core.rewards import code, math  # noqa: F401
from elastic_core.rewards.truth import ATTEMPTS, FIRST_WAIT, GRADERS, Grade, GradeStatus, GradingFailed, solution_of

T = TypeVar("T")
KINDS = tuple(sorted(GRADERS))  # kinds that `grade` takes


class Answer(NamedTuple):
    """What `grade` takes."""

    kind: str
    response: str
    truth: str


def grade(kind: str, response: str, truth: str) -> Grade:
    """Grade one response against the right answer, as `elastic_core.rewards.truth` encodes it; for a choice its letter.
    Only what follows the last think-end is read; without one there is no credit. Safe to call from any thread.

    Raises:
        ValueError: on an unknown kind, or a truth that is none of this kind.
        GradingFailed: when the grader failed `ATTEMPTS` times.
        UserError: when programs are to be graded and there is no sandbox.
    """
    if kind not in GRADERS:
        raise ValueError(f'no grader "{kind}"; expected one of {", ".join(KINDS)}')
    solution = solution_of(response)
    if solution is None:
        return Grade(0.0, GradeStatus.TRUNCATED, None)
    return patiently(lambda: GRADERS[kind](solution, truth))


def patiently(grade: Callable[[], T]) -> T:
    """What grading gives in one of `ATTEMPTS`, with pauses between them. GradingFailed when none succeeds."""
    for attempt in range(ATTEMPTS - 1):
        with suppress(GradingFailed):
            return grade()
        time.sleep(FIRST_WAIT * 2**attempt)
    return grade()


def grade_many(answers: Sequence[Answer]) -> list[Grade]:
    """Grades in the order of the answers, on all cores; equal answers are graded once. Raises as `grade`."""
    return on_all_cores(grade, answers)


def on_all_cores(grader: Callable[..., T], answers: Sequence[tuple[Any, ...]]) -> list[T]:
    """Results of a grader for answers, which are its arguments; equal answers are graded once. Raises as the grader."""
    different = list(dict.fromkeys(answers))
    # What takes long is done by other processes, which these threads wait for.
    with ThreadPoolExecutor(min(len(different), cpu_count() or 1) or 1) as pool:
        grades = dict(zip(different, pool.map(lambda answer: grader(*answer), different), strict=True))
    return [grades[answer] for answer in answers]
