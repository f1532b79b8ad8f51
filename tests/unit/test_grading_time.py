"""No text keeps a grader busy: runs of whatever patterns repeat take time linear in their length."""

import time
from collections.abc import Callable

import pytest

from elastic_core.rewards import GradeStatus, grade
from elastic_core.rewards import code as rewards_code
from elastic_core.rewards import math as rewards_math
from elastic_core.rewards.code import same_output
from elastic_core.rewards.math.compare import MAX_LENGTH
from elastic_core.rewards.truth import CodeTest, CodeTruth

SECONDS, GROWTH = 1.0, 30
"""What is slow: more than a second of processor time, and 30 times what a tenth of the length takes, which is 10 times
where time is linear and 100 times where it is quadratic. Seconds alone would depend on what else the machine does."""
LENGTHS = (30_000, 300_000, *(pytest.param(length, marks=pytest.mark.slow) for length in (10**5, 10**6)))

RUNS = (
    " ", "\n", "\t", " \n", "(", ")", "[", "]", "{", "}", "()", "{}", "\\{", "\\}", "\\(", "\\)", ",", ", ",
    "1,", "1, ", "$", "$$", "$ ", "*", "**", "_", "\"", "'", "`", "```", "```\n", "```a\n", "\\", "\\\\", "\\ ",
    ".", ":", "=", "-", "^", "&", "%", "√", "²", "½", "1", "x", "\\boxed", "\\boxed ", "\\boxed{", "\\boxed{}",
    "\\text{", "\\text{ or ", "\\frac", "\\frac ", "\\frac{1}", "\\overline{", "and ", "or ", ", or ",
    "answer ", "answer is ", "Answer: ", "option ", "option A ", "A,", "A, ", "the answer is A, ", "x<",
    "x<1 or ", "\\cup ", "\\pm ", "</think>", "Answer:", "Answer: $", "choice **", "\\boxed{(",
    "\\boxed{\\boxed ", "\\boxed{1}",
)  # fmt: skip
SPELLINGS = (
    "=1", "1=", "1=2=", "\\approx ", "\\choose ", "\\color{red}", "\\mathbf{", "1 h ", "]1,", "\\{x:", "(C)", "^T",
    "_4C_2", "(mod 7", ".(3)",
)  # fmt: skip
"""Of answers only."""
BEGINNINGS = (
    "",
    "The answer is",
    "the answer",
    "Answer: A,",
    "Answer: A",
    "option A",
    "\\boxed{A",
    "\\boxed{",
    "```python\n",
)
TRUTHS = {"math": "46", "choice": "A", "code": CodeTruth("stdin", (CodeTest("", "1"),)).encode()}


@pytest.fixture(autouse=True)
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers and programs have deadlines of their own."""

    class Pool:
        def accepts(self, answer: str, truth: str) -> bool:
            return False

    monkeypatch.setattr(rewards_math, "shared_pool", Pool)
    monkeypatch.setattr(rewards_code, "run", lambda program, truth: GradeStatus.WRONG)


def seconds(kind: str, solution: str) -> float:
    started = time.thread_time()
    grade(kind, f"</think>{solution}", TRUTHS[kind])
    return time.thread_time() - started


def is_slow(seconds_of: Callable[[int], float], length: int) -> bool:
    if seconds_of(length) <= SECONDS:
        return False
    # A collection of what other tests left behind is in the time of one call, and not in that of the next two.
    taken = min(seconds_of(length), seconds_of(length))
    return taken > SECONDS and taken > GROWTH * seconds_of(length // 10)


def test_what_is_quadratic_is_slow_and_what_is_linear_is_not() -> None:
    assert is_slow(lambda length: 1e-8 * length**2, 30_000)
    assert not is_slow(lambda length: 1e-3 * length, 30_000)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("kind", TRUTHS)
def test_no_run_is_slow(kind: str, beginning: str, length: int) -> None:
    def of(run: str) -> Callable[[int], float]:
        return lambda length: seconds(kind, beginning + run * (length // len(run)) + "x")

    runs = RUNS if length <= 10**5 else (" ", "(", ",", "$", "\\boxed{")
    assert [run for run in runs if is_slow(of(run), length)] == []


def test_no_answer_of_the_length_that_is_parsed_is_slow() -> None:
    def of(run: str, end: str) -> Callable[[int], float]:
        return lambda length: seconds("math", f"\\boxed{{{(run * (length // len(run)))[: length - len(end)] + end}}}")

    ends = ("", "x", "\\text{ cm}")
    assert [(run, end) for run in (*RUNS, *SPELLINGS) for end in ends if is_slow(of(run, end), MAX_LENGTH)] == []


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("token", ["1", "1 ", "1.", "1.5 ", "e", "0", "9.", "-", "."])
def test_no_output_is_slow_to_compare(token: str, length: int) -> None:
    def of(length: int) -> float:
        started = time.thread_time()
        same_output((token * (length // len(token))).encode(), "1.5 " * (length // 4))
        same_output((token * (length // len(token))).encode() + b"5", "1.5")
        return time.thread_time() - started

    assert not is_slow(of, length)
