"""No text keeps a grader busy: runs of whatever patterns repeat take time linear in their length."""

import gc
import time
from collections.abc import Iterator

import pytest

from elastic_core.rewards import GradeStatus, grade
from elastic_core.rewards import code as rewards_code
from elastic_core.rewards import math as rewards_math
from elastic_core.rewards.code import same_output
from elastic_core.rewards.math.compare import MAX_LENGTH
from elastic_core.rewards.truth import CodeTest, CodeTruth

SECONDS = 1.0
"""Of processor time, in the caller's own process; the test runs on busy machines."""
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


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """A collection of what other tests left behind would count as the grader's time."""
    gc.disable()
    yield
    gc.enable()


def seconds(kind: str, solution: str) -> float:
    started = time.thread_time()
    grade(kind, f"</think>{solution}", TRUTHS[kind])
    return time.thread_time() - started


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("kind", TRUTHS)
def test_no_run_takes_longer_than_a_second(kind: str, beginning: str, length: int) -> None:
    runs = RUNS if length <= 10**5 else (" ", "(", ",", "$", "\\boxed{")
    slow = {
        run: taken for run in runs if (taken := seconds(kind, beginning + run * (length // len(run)) + "x")) > SECONDS
    }
    assert slow == {}


def test_no_answer_of_the_length_that_is_parsed_takes_longer_than_a_second() -> None:
    slow = {}
    for run in (*RUNS, *SPELLINGS):
        for end in ("", "x", "\\text{ cm}"):
            answer = (run * (MAX_LENGTH // len(run)))[: MAX_LENGTH - len(end)] + end
            taken = seconds("math", f"\\boxed{{{answer}}}")
            if taken > SECONDS:
                slow[run, end] = taken
    assert slow == {}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("token", ["1", "1 ", "1.", "1.5 ", "e", "0", "9.", "-", "."])
def test_no_output_takes_longer_than_a_second_to_compare(token: str, length: int) -> None:
    started = time.thread_time()
    same_output((token * (length // len(token))).encode(), "1.5 " * (length // 4))
    same_output((token * (length // len(token))).encode() + b"5", "1.5")
    assert time.thread_time() - started < SECONDS
