"""Answers compared with each other, without a truth: what a grader would read, in one spelling."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from elastic_core.models.special_tokens import Markers
from elastic_core.rewards.math.compare import MAX_LENGTH
from elastic_core.rewards.math.normal import normal
from elastic_core.rewards.response import chosen_letter, extract_code, last_boxed, response_text
from elastic_core.rewards.truth import solution_of

if TYPE_CHECKING:
    from elastic_core.trajectory import Trajectory

_READERS: dict[str, Callable[[str], str | None]] = {"math": last_boxed, "choice": chosen_letter, "code": extract_code}


def read_answer(kind: str, response: str) -> str | None:
    """What a grader of this kind reads in a response (`ResponseText.graded`); None where there is no answer."""
    solution = solution_of(response)
    return None if solution is None else _READERS[kind](solution) or None


def spelled(answer: str | None) -> str | None:
    """One spelling of an answer: equal texts are the same answer. Nothing is computed, so that 0.5 is not 1/2."""
    return answer if answer is None or len(answer) > MAX_LENGTH else normal(answer)


def answer_reader(tokenizer: Any, markers: Markers, kind: str) -> Callable[[Trajectory], str | None]:
    """Reads the answer of a trajectory, spelled."""

    def read(trajectory: Trajectory) -> str | None:
        return spelled(read_answer(kind, response_text(tokenizer, markers, trajectory).graded(trajectory.think_finish)))

    return read
