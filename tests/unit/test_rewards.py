"""Grading of mathematics as far as it needs no computer algebra: what counts, and what is equal to what."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.rewards import GradeStatus, grade
from elastic_core.rewards import math as rewards_math
from elastic_core.rewards.math.compare import MAX_LENGTH, accepts, undecided
from elastic_core.rewards.math.normal import normal, number
from elastic_core.rewards.truth import MathTruth
from tests.integration.test_answer_rules import DOCUMENTED, MORE


@pytest.fixture(autouse=True)
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may need a worker."""

    def forbidden() -> None:
        raise AssertionError("a worker was asked")

    monkeypatch.setattr("elastic_core.rewards.math.shared_pool", forbidden)


def equal(answer: str, accepted: str, **truth: object) -> bool | None:
    return accepts(answer, MathTruth((accepted,), **truth), undecided)  # type: ignore[arg-type]


def test_a_right_boxed_integer_after_think_end_scores_one() -> None:
    assert grade("math", r"44+2</think>Final Answer:\boxed{46}", "46") == (1.0, GradeStatus.CORRECT, "46")


@pytest.mark.parametrize(
    ("response", "status", "answer"),
    [
        (r"</think>\boxed{45}", GradeStatus.WRONG, "45"), (r"the answer is \boxed{46}", GradeStatus.TRUNCATED, None),
        (r"\boxed{46}</think>so it is 46", GradeStatus.NO_ANSWER, None),
        (r"</think>\boxed{46", GradeStatus.NO_ANSWER, None), (r"</think>\boxed{}", GradeStatus.NO_ANSWER, None),
        (r"</think>\boxed{46} \fbox{ }", GradeStatus.NO_ANSWER, None),
        (r"</think>\boxed{46}</think>", GradeStatus.NO_ANSWER, None),
        (r"</think>\boxed{46}, no: \boxed{1}", GradeStatus.WRONG, "1"),
    ],
)  # fmt: skip
def test_everything_else_scores_zero_and_says_why(response: str, status: GradeStatus, answer: str | None) -> None:
    assert grade("math", response, "46") == (0.0, status, answer)


@given(st.integers(-99, 99), st.integers(-99, 99))
def test_integers_match_only_themselves(answer: int, truth: int) -> None:
    assert grade("math", rf"</think>\boxed{{{answer}}}", str(truth)).score == float(answer == truth)


@pytest.mark.parametrize("rule", DOCUMENTED)
def test_the_documented_rules_are_decided_here_or_left_to_computer_algebra(rule: str) -> None:
    for one in (*DOCUMENTED[rule], *MORE.get(rule, ())):
        truth = MathTruth.decode(one.accepted)
        assert {accepts(answer, truth, undecided) for answer in (one.accepted, *one.right)} <= {True, None}, one
        assert {accepts(answer, truth, undecided) for answer in one.wrong} <= {False, None}, one


def test_most_of_them_are_decided_here() -> None:
    cases = [
        (each, one) for rules in (DOCUMENTED, MORE) for named in rules.values() for one in named for each in one[1:]
    ]
    verdicts = [
        accepts(answer, MathTruth.decode(one.accepted), undecided) for answers, one in cases for answer in answers
    ]
    assert 2 * verdicts.count(None) < len(verdicts)


@pytest.mark.parametrize("answer", ["", " ", "9" * 1_000_000])
def test_nothing_and_a_flood_of_digits_are_wrong(answer: str) -> None:
    assert equal(answer, "46") is False


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        (r"\sin 2x", r"2\sin x\cos x"), ("f(x)", "x"), ("1.41421356", r"\sqrt{2}"), ("1/2x", "x"),
        (r"\sqrt{3}", r"\sqrt{2}"), ("2x+4", "2x+3"), ("X", "x"), ("y=5", "x=5"), ("9^{9^9}", "46"),
    ],
)  # fmt: skip
def test_what_takes_computer_algebra_is_left_to_it(answer: str, accepted: str) -> None:
    assert equal(answer, accepted) is None


def test_any_accepted_answer_will_do_and_all_are_wanted_where_the_truth_says_so() -> None:
    some, every = MathTruth(("1", "2")), MathTruth(("1", "2"), "all")
    for answer in ("1", "2", "3", "2, 1", "1,2,2", "1,1"):
        assert accepts(answer, some, undecided) == (answer in ("1", "2")), answer
        assert accepts(answer, every, undecided) == (answer == "2, 1"), answer


def test_a_comma_may_separate_answers_or_thousands() -> None:
    assert accepts("1,200", MathTruth(("1200",), "all"), undecided)
    assert accepts("1,200", MathTruth(("1", "200"), "all"), undecided)
    assert accepts("1,200", MathTruth(("12", "00"), "all"), undecided) is False


def test_a_tolerance_is_an_absolute_difference_and_includes_its_end() -> None:
    for answer, score in (("1.45", True), ("1.55", True), ("1.44", False), ("1.5501", False), (r"\frac{3}{2}", True)):
        assert equal(answer, "1.5", tolerance=0.05) is score, answer
    # 1.0 is near to both, but then nothing is left for 1.15.
    assert accepts("1.0, 1.15", MathTruth(("1.1", "1.0"), "all", 0.1), undecided)
    assert accepts("1.0, 1.25", MathTruth(("1.1", "1.0"), "all", 0.1), undecided) is False


def test_a_unit_may_be_repeated_or_left_out_and_another_is_wrong() -> None:
    for answer in ("5", r"5\text{ cm}^2", r"5\text{ cm}", r"5\text{ square centimeters}"):
        assert equal(answer, "5", unit=r"\mathrm{~cm}^2") is (answer != r"5\text{ cm}"), answer
    assert equal("5 m", "5", unit="m")
    assert equal(r"5\text{ km}", "5", unit="m") is False
    assert equal("5 zorkmids", "5", unit="zorkmids")
    assert equal("5", r"5\text{ m}", unit="m")


def test_a_long_answer_is_right_only_as_it_is_spelled() -> None:
    long = "1+" * MAX_LENGTH + "1"
    assert equal(long, long)
    assert equal(f" {long} ", long)
    assert equal("0+" + long, long) is False


@given(st.fractions(max_denominator=999))
def test_fractions_survive_their_spelling(value: Fraction) -> None:
    sign, over, under = "-" if value < 0 else "", abs(value.numerator), value.denominator
    for text in (
        f"{sign}\\frac{{{over}}}{{{under}}}",
        f"{sign}{over}/{under}",
        f"{sign}{over // under}\\frac{{{over % under}}}{{{under}}}",
    ):
        assert number(normal(text)) == (value, False)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=4))
def test_decimals_are_exact(value: object) -> None:
    read = number(normal(f"{value:,f}"))  # type: ignore[str-format]
    assert read is not None and read.value == Fraction(str(value))


@pytest.mark.parametrize(
    "text", ["9" * 5000, "1e99999999", "10^{99999}", "1/0", "٤٦", "", "1,00", "1,2", "1..2", "--1", "x", "1e", "."]
)
def test_what_is_no_number_that_is_read(text: str) -> None:
    assert number(text) is None


@given(st.text())
def test_any_answer_is_compared_without_an_error(answer: str) -> None:
    assert equal(answer, r"\{1\pm\sqrt{5},-2\}") in (True, False, None)
    assert equal("46", answer or "x") in (True, False, None)


def test_long_answers_are_not_remembered() -> None:
    before = rewards_math._verdict.cache_info().currsize
    for digit in "123":
        answer = digit + "0" * MAX_LENGTH
        assert grade("math", f"</think>\\boxed{{{answer}}}", "1").status is GradeStatus.WRONG
        assert grade("math", f"</think>\\boxed{{{answer}}}", answer).status is GradeStatus.CORRECT
    assert rewards_math._verdict.cache_info().currsize == before
