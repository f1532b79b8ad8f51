"""Grades as the authors' program gives them (Elastic-Reasoning, commit 8871a3c), beside ours; docs/seeds.md says where
the two differ."""

from __future__ import annotations

from functools import lru_cache

from elastic_core.rewards.math import AS_PUBLISHED, CACHE_SIZE, Exhausted, shared_pool
from elastic_core.rewards.math.as_published import boxed_answer, same_spelling
from elastic_core.rewards.truth import GRADERS, THINK_END, MathTruth

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
    # What is between the first think-end and the next: all else is another part of their split.
    answer = boxed_answer(response.partition(THINK_END)[2].partition(THINK_END)[0])
    return float(answer is not None and any(_same(answer, accepted) for accepted in _accepted(benchmark, truth)))


@lru_cache(maxsize=CACHE_SIZE)
def _same(answer: str, accepted: str) -> bool:
    if same_spelling(answer, accepted):
        return True
    try:
        return shared_pool().accepts(answer, accepted, AS_PUBLISHED)
    except Exhausted:
        return False


def _accepted(benchmark: str, truth: str) -> tuple[str, ...]:
    """Answers of a truth as the files of their benchmarks spell them, where this changes a verdict.

    AMC's are floats, and those of AIME 2024 have three digits. OlympiadBench's are one text for all answers, without
    unit and tolerance, and those with letters or LaTeX are in dollars, which `same_spelling` does not see through.
    """
    decoded = MathTruth.decode(truth)
    if benchmark == "amc":
        return tuple(str(float(answer)) for answer in decoded.answers)
    if benchmark == "aime-2024":
        return tuple(answer.zfill(3) for answer in decoded.answers)
    if benchmark == "olympiadbench":
        text = ",".join(decoded.answers)
        return (f"${text}$" if any(character.isalpha() for character in text) else text,)
    return decoded.answers
