"""The one entry point: every kind, in batches, and what happens when the grader itself fails."""

from collections.abc import Callable

import pytest

from elastic_core import rewards
from elastic_core.rewards import ATTEMPTS, KINDS, Answer, Grade, GradeStatus, GradingFailed, grade, grade_many


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_gives_credit_inside_an_unfinished_thought(kind: str) -> None:
    truth = {"math": "4", "choice": "A", "code": '{"kind":"check","code":"def check(f): pass"}'}[kind]
    response = "the answer is \\boxed{4}, Answer: A\n```python\nprint(4)\n```"
    assert grade(kind, response, truth) == Grade(0.0, GradeStatus.TRUNCATED, None)


def test_a_batch_is_graded_in_order() -> None:
    answers = [Answer("math", f"</think>\\boxed{{{i % 3}}}", "1") for i in range(10)]
    assert [graded.score for graded in grade_many(answers)] == [float(i % 3 == 1) for i in range(10)]
    assert grade_many([]) == []
    with pytest.raises(ValueError, match=r'"essay".* choice, code, math'):
        grade("essay", "", "")


class Failing:
    """A grader that asks another process and fails a number of times."""

    def __init__(self, times: int) -> None:
        self.times, self.calls = times, 0

    def __call__(self, response: str, truth: str) -> Grade:
        self.calls += 1
        if self.calls <= self.times:
            raise GradingFailed("no memory")
        return Grade(1.0, GradeStatus.CORRECT, "4")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    taken: list[float] = []
    monkeypatch.setattr("time.sleep", taken.append)
    return taken


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> Callable[[int], Failing]:
    def install(times: int) -> Failing:
        grader = Failing(times)
        monkeypatch.setitem(rewards.GRADERS, "math", grader)
        return grader

    return install


def test_a_grader_that_fails_is_tried_again_after_pauses_that_grow(
    failing: Callable[[int], Failing], pauses: list[float]
) -> None:
    failing(ATTEMPTS - 1)
    assert grade("math", "</think>", "").score == 1.0
    assert pauses == [1, 2, 4, 8]


def test_a_grader_that_keeps_failing_is_an_error_and_never_a_score(failing: Callable[[int], Failing]) -> None:
    grader = failing(ATTEMPTS)
    with pytest.raises(GradingFailed, match="no memory"):
        grade_many([Answer("math", "</think>", "")] * 2)
    assert grader.calls == ATTEMPTS, "equal answers are graded once"
