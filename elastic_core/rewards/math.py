r"""Mathematical answers: what counts of a response, and whether it is right.

Covered: the last box of the solution, compared as mathematics with the accepted answers, or with all of several in any
order; units, tolerances, tuples, sets, intervals, inequalities and matrices. Numbers, and what is spelled alike, are
compared here; expressions by math-verify, in a worker process with a deadline. docs/data.md has the rules, and
tests/integration/test_answer_rules.py their examples.

Not covered: whether a response shows its work, and answers without a box. Equality is as good as sympy's `simplify`:
expressions that it cannot bring together are graded as wrong.
"""

from __future__ import annotations

from functools import lru_cache

from elastic_core.rewards.boxed import last_boxed
from elastic_core.rewards.compare import accepts, undecided
from elastic_core.rewards.grade import Grade, GradeStatus, solution_of
from elastic_core.rewards.math_pool import Failure, pool
from elastic_core.rewards.truth import MathTruth

CACHE_SIZE = 1 << 14
"""Verdicts that are remembered: answers repeat over samples and budgets."""


def grade_math(response: str, truth: str) -> Grade:
    """Grade a response by its last boxed answer after the last think-end. Safe to call from any thread.

    Args:
        response: the model's whole text, think-end included as text; without one there is no credit.
        truth: an encoded `MathTruth`; one plain answer is its own text.

    Returns:
        TIMEOUT, without credit, when the comparison took more time or memory than it may; SANDBOX_ERROR when a worker
        process ended twice for another reason.

    Raises:
        ValueError: when the truth is not one.
    """
    solution = solution_of(response)
    if solution is None:
        return Grade(0.0, GradeStatus.TRUNCATED, None)
    answer = last_boxed(solution)
    if not answer:  # An empty box holds none.
        return Grade(0.0, GradeStatus.NO_ANSWER, None)
    try:
        verdict = _verdict(answer, truth)
    except _Undecided as error:
        exhausted = error.failure is Failure.EXHAUSTED
        return Grade(0.0, GradeStatus.TIMEOUT if exhausted else GradeStatus.SANDBOX_ERROR, answer)
    return Grade(float(verdict), GradeStatus.CORRECT if verdict else GradeStatus.WRONG, answer)


class _Undecided(Exception):
    """There is no verdict; raised, since what is raised is not remembered: another time there may be one."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


@lru_cache(maxsize=CACHE_SIZE)
def _verdict(answer: str, truth: str) -> bool:
    known = accepts(answer, MathTruth.decode(truth), undecided)
    verdict = pool().accepts(answer, truth) if known is None else known
    if isinstance(verdict, Failure):
        raise _Undecided(verdict)
    return verdict
