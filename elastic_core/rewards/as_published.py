"""Grades as the authors' program gives them (Elastic-Reasoning, commit 8871a3c), beside ours; docs/seeds.md says where
the two differ."""

from __future__ import annotations

from elastic_core.rewards.math import grade_math
from elastic_core.rewards.truth import GRADERS, THINK_END

NAME = "elastic-reasoning"


def grade_as_published(kind: str, benchmark: str, thinking: str, solution: str | None, truth: str) -> float:
    """Score in {0.0, 1.0} that the authors' program gives to a response, by its rules.

    `kind` is one of `elastic_core.rewards.KINDS`, `thinking` and `solution` are those of `ResponseText` (solution None
    where none was begun), and `truth` is encoded as in `elastic_core.rewards.truth`. Safe to call from any thread.

    Raises ValueError on a kind that they do not grade, such as choices, and as `elastic_core.rewards.grade` does.
    """
    response = thinking if solution is None else f"{thinking}{THINK_END}{solution}"
    if kind == "code":
        return GRADERS[kind](response, truth).score
    if kind != "math":
        raise ValueError(f"{NAME} does not grade {kind}; expected math or code")
    _, closed, rest = response.partition(THINK_END)
    return grade_math(rest.partition(THINK_END)[0], truth).score if closed else 0.0
