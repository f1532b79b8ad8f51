"""Grading: rows of a sweep, mathematics against a serial sympy grader, hostile answers, programs in the sandbox."""

from __future__ import annotations

from tests.bench import grading_code, grading_math, grading_rows, results


def main() -> None:
    result = {**grading_rows.measure(), **grading_math.measure(), **grading_code.measure()}
    results.write("grading", result)


if __name__ == "__main__":
    main()
