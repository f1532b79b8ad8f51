"""Grading: rows of a sweep, mathematics against a serial sympy grader, hostile answers, programs in the sandbox."""

from __future__ import annotations

from elastic_core.rewards.code.sandbox import sandbox_problem
from tests.bench import grading_code, grading_math, grading_rows, results
from tests.bench.inputs import missing_upstream
from tests.real_answers import DATASETS


def main() -> None:
    figures = grading_rows.measure()
    if reason := missing_upstream(*DATASETS):
        print(f"{results.SKIPPED}mathematics: {reason}")
    else:
        figures |= grading_math.measure()
    if reason := sandbox_problem() or missing_upstream("codeforces"):
        print(f"{results.SKIPPED}programs: {reason}")
    else:
        figures |= grading_code.measure()
    results.write("grading", figures)


if __name__ == "__main__":
    main()
