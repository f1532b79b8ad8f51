"""Grading: rows of a sweep, mathematics against a serial sympy grader, hostile answers, programs in the sandbox."""

from __future__ import annotations

import json

from flows.environment import runs_directory
from tests.bench import grading_code, grading_math, grading_rows


def main() -> None:
    result = {**grading_rows.measure(), **grading_math.measure(), **grading_code.measure()}
    target = runs_directory() / "bench" / "grading.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n")
    print(target)


if __name__ == "__main__":
    main()
