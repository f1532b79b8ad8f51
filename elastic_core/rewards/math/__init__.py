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

from elastic_core.rewards.extraction import last_boxed
from elastic_core.rewards.grade import Grade, GradeStatus
from elastic_core.rewards.math.compare import MAX_LENGTH, accepts, undecided
from elastic_core.rewards.math.pool import Exhausted, shared_pool
from elastic_core.rewards.truth import MathTruth

CACHE_SIZE = 1 << 14
"""Verdicts that are remembered: answers repeat over samples and budgets."""


def grade_math(solution: str, truth: str) -> Grade:
    """Grade a solution by its last boxed answer. Safe to call from any thread.

    Args:
        truth: an encoded `MathTruth`; one plain answer is its own text.

    Returns:
        TIMEOUT, without credit, when the comparison took more time or memory than it may.

    Raises:
        ValueError: when the truth is not one.
        GradingFailed: when a worker process ended twice for another reason.
    """
    answer = last_boxed(solution)
    if not answer:  # An empty box holds none.
        return Grade(0.0, GradeStatus.NO_ANSWER, None)
    try:
        # A long answer is compared as spelled, and not worth a megabyte of memory.
        verdict = (_verdict if len(answer) <= MAX_LENGTH else _verdict.__wrapped__)(answer, truth)
    except Exhausted:
        return Grade(0.0, GradeStatus.TIMEOUT, answer)
    return Grade(float(verdict), GradeStatus.CORRECT if verdict else GradeStatus.WRONG, answer)


@lru_cache(maxsize=CACHE_SIZE)
def _verdict(answer: str, truth: str) -> bool:
    # What the pool raises is not remembered: another time there may be a verdict.
    known = accepts(answer, MathTruth.decode(truth), undecided)
    return shared_pool().accepts(answer, truth) if known is None else known
