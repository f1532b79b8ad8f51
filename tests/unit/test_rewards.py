import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.rewards import GradeStatus, grade
from elastic_core.rewards.math import last_boxed


def test_a_right_boxed_integer_after_think_end_scores_one() -> None:
    assert grade("math", r"44+2</think>Final Answer:\boxed{46}", "46") == (1.0, GradeStatus.CORRECT, "46")


@pytest.mark.parametrize(
    ("response", "status", "answer"),
    [
        (r"</think>\boxed{45}", GradeStatus.WRONG, "45"),
        (r"the answer is \boxed{46}", GradeStatus.TRUNCATED, None),
        (r"\boxed{46}</think>so it is 46", GradeStatus.NO_ANSWER, None),
        (r"</think>\boxed{46", GradeStatus.NO_ANSWER, None),
        (r"</think>\boxed{}", GradeStatus.WRONG, ""),
        (r"</think>\boxed{46}</think>", GradeStatus.NO_ANSWER, None),
    ],
)
def test_everything_else_scores_zero_and_says_why(response: str, status: GradeStatus, answer: str | None) -> None:
    assert grade("math", response, "46") == (0.0, status, answer)


def test_the_last_box_counts() -> None:
    assert grade("math", r"</think>\boxed{1}, no: \boxed{46}", "46").score == 1.0
    assert grade("math", r"</think>\boxed{46}, no: \boxed{1}", "46").score == 0.0


def test_answers_are_compared_as_mathematics() -> None:
    assert grade("math", r"</think>\boxed{\frac{1}{2}}", "0.5").score == 1.0
    assert grade("math", r"</think>\boxed{046}", "46").score == 1.0


@given(st.integers(0, 99), st.integers(0, 99))
def test_integers_match_only_themselves(answer: int, truth: int) -> None:
    assert grade("math", rf"</think>\boxed{{{answer}}}", str(truth)).score == float(answer == truth)


@given(st.text(alphabet="\\boxed{}1 ", max_size=40))
def test_any_text_is_read_without_an_error(text: str) -> None:
    answer = last_boxed(text)
    assert answer is None or answer.count("{") == answer.count("}")


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ValueError, match='no grader "poetry"'):
        grade("poetry", "", "")
