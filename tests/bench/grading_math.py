"""How fast mathematical answers are graded, against a grader that asks sympy about every pair, and how long the worst
answers take.

The baseline is serial and does for every pair what a straightforward grader does: equal texts are equal; otherwise both
are parsed by sympy's own LaTeX parser (`sympy.parsing.latex.parse_latex`, by lark, as its other backend wants another
antlr than math-verify) and compared by `simplify(a - b) == 0`; what cannot be parsed or compared is wrong. It gets the
answers without boxes and starts with sympy imported, while ours reads boxes and starts its workers on the clock.
Neither remembers anything of an earlier run. A second baseline does the same with math-verify's parser, which is faster
than sympy's.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastic_core.rewards import Answer, GradeStatus, grade, grade_many
from elastic_core.rewards.math import DEADLINE
from tests.hostile_answers import hostile_answers
from tests.real_answers import accepted_answers, boxed, other_notation

NUM_PAIRS = 3000
BASELINE_SECONDS_PER_PAIR = 5.0
"""After which the baseline gives a pair up."""


def main() -> None:
    measure()


def measure() -> dict[str, float]:
    """Throughput as a multiple of the baseline's, and the largest excess over the deadline among hostile answers."""
    given = pairs()
    ours = _rate("ours", len(given), lambda: _ours(given))
    baseline = _rate("serial sympy", len(given), lambda: _serial(given, _sympy_parser()))
    faster = _rate("serial simplify on math-verify's parser", len(given), lambda: _serial(given, _math_verify_parser()))
    excess = max_over_deadline()
    print(f"{ours / baseline:.1f} times serial sympy, {ours / faster:.1f} times that on math-verify's parser")
    print(f"slowest hostile answer: {excess:+.2f} s from the deadline of {DEADLINE} s")
    return {
        "math_speedup": ours / baseline,
        "math_speedup_over_math_verify_parser": ours / faster,
        "math_answers_per_second": ours,
        "max_over_deadline_seconds": excess,
    }


def pairs(seed: int = 0) -> list[tuple[str, str]]:
    """Answers, each with a right answer: every other one is the same in another notation, the others another's."""
    draw = random.Random(seed)
    golds = [answer for answer, _ in accepted_answers()]
    chosen = [draw.choice(golds) for _ in range(NUM_PAIRS)]
    return [(draw.choice(golds) if n % 2 else other_notation(gold, draw), gold) for n, gold in enumerate(chosen)]


def max_over_deadline() -> float:
    """Seconds by which the slowest hostile answer exceeds the deadline; negative when none comes near it."""
    with tempfile.TemporaryDirectory() as directory:
        hostile = list(hostile_answers(str(Path(directory) / "canary")))
    _seconds("</think>\\boxed{f(x)}", "x")  # a worker is started
    return max(_seconds(item.response, item.truth) for item in hostile) - DEADLINE


def _seconds(response: str, truth: str) -> float:
    started = time.perf_counter()
    grade("math", response, truth)
    return time.perf_counter() - started


def _rate(name: str, count: int, work: Callable[[], int]) -> float:
    started = time.perf_counter()
    right = work()
    seconds = time.perf_counter() - started
    print(f"{name}: {count / seconds:.0f} answers/s, {right} of {count} right")
    return count / seconds


def _ours(given: list[tuple[str, str]]) -> int:
    graded = grade_many([Answer("math", boxed(answer), gold) for answer, gold in given])
    return sum(one.status is GradeStatus.CORRECT for one in graded)


def _serial(given: list[tuple[str, str]], parse: Callable[[str], Any]) -> int:
    import warnings

    from math_verify.errors import TimeoutException
    from math_verify.utils import timeout
    from sympy import simplify

    @timeout(int(BASELINE_SECONDS_PER_PAIR))
    def is_equal(answer: str, gold: str) -> bool:
        return answer == gold or bool(simplify(parse(answer) - parse(gold)) == 0)

    warnings.simplefilter("ignore")
    right = 0
    for answer, gold in given:
        try:
            right += is_equal(answer, gold)
        except (Exception, TimeoutException):
            continue
    return right


def _sympy_parser() -> Callable[[str], Any]:
    from sympy.parsing.latex import parse_latex

    return lambda text: parse_latex(text, backend="lark")


def _math_verify_parser() -> Callable[[str], Any]:
    from latex2sympy2_extended import latex2sympy

    return latex2sympy


if __name__ == "__main__":
    main()
