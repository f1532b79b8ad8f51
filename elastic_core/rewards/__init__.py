"""Grading, behind one entry point: `grade(kind, response, truth)`, and `grade_many` for batches.

A kind of truth is a function `(solution, truth) -> Grade` under `@grader(kind)`: imported here, or a user's.

A grade is about the response. When the grader itself fails, it tries again after a pause, and if that does not help it
raises: a response is never scored 0 because a machine was out of memory or processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os import cpu_count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from elastic_core.models.special_tokens import Markers
from elastic_core.rewards import code, math  # noqa: F401
from elastic_core.rewards.math.compare import MAX_LENGTH
from elastic_core.rewards.math.normal import normal
from elastic_core.rewards.response import chosen_letter, extract_code, last_boxed, response_text
from elastic_core.rewards.truth import (
    ATTEMPTS,
    FIRST_WAIT,
    GRADERS,
    Grade,
    Grader,
    GradeStatus,
    GradingFailed,
    solution_of,
)
from elastic_core.system.imported import imported

if TYPE_CHECKING:
    from elastic_core.trajectory import Trajectory

T = TypeVar("T")
KINDS = tuple(sorted(GRADERS))  # kinds that `grade` takes
_READERS: dict[str, Callable[[str], str | None]] = {"math": last_boxed, "choice": chosen_letter, "code": extract_code}


class Answer(NamedTuple):
    """What `grade` takes."""

    kind: str
    response: str
    truth: str


def grade(kind: str, response: str, truth: str) -> Grade:
    """Grade one response against the right answer, as `elastic_core.rewards.truth` encodes it; for a choice its letter.
    Only what follows the last think-end is read; without one the score is 0. Safe to call from any thread.

    Raises:
        ValueError: on an unknown kind, or a truth that is none of this kind.
        GradingFailed: when the grader failed `ATTEMPTS` times.
        UserError: when programs are to be graded without a sandbox.
    """
    grader, solution = grader_of(kind), solution_of(response)
    if solution is None:
        return Grade(0.0, GradeStatus.TRUNCATED, None)
    return patiently(lambda: grader(solution, truth))


def grader_of(kind: str) -> Grader:
    """The grader of a kind: of `KINDS`, or a user's by import path, which must be declared: rows name it. ValueError on
    an unknown kind, UserError as `imported`."""
    if ":" in kind and kind not in GRADERS:
        imported(kind)
    if kind not in GRADERS:
        raise ValueError(f'no grader "{kind}"; expected one of {", ".join(KINDS)}, or module:function by @grader')
    return GRADERS[kind]


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


def read_answer(kind: str, response: str) -> str | None:
    """The answer that a grader of this kind reads in a response (`ResponseText.graded`); None without one."""
    solution = solution_of(response)
    return None if solution is None else _READERS.get(kind, last_boxed)(solution) or None


def spelled(answer: str | None) -> str | None:
    """One spelling of an answer: equal texts are the same answer. Nothing is computed, so that 0.5 is not 1/2."""
    return answer if answer is None or len(answer) > MAX_LENGTH else normal(answer)


def answer_reader(tokenizer: Any, markers: Markers, kind: str) -> Callable[[Trajectory], str | None]:
    """Reads the answer of a trajectory, spelled."""

    def read(trajectory: Trajectory) -> str | None:
        return spelled(read_answer(kind, response_text(tokenizer, markers, trajectory).graded(trajectory.think_finish)))

    return read
