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


@pytest.mark.parametrize(
    "spellings",
    [
        ("1000", "1,000", r"1{,}000", r"1\,000", r"1,\!000", "1 000", "1000.0", "+1000", "$1000$", r"\text{1000}"),
        ("1000", r"1 \times 10^3", "1e3", r"10^3", r"\frac{2000}{2}", "{1000}", r"\$1000"),
        (r"\frac{1}{2}", r"\dfrac12", r"\tfrac{1}2", r"\frac12", "1/2", "0.5", ".5", "0.50", r"\frac{2}{4}", "(0.5)"),
        (r"1\frac{1}{2}", "1 1/2", r"1 \frac12", r"\frac{3}{2}", "1.5"),
        (r"-\frac{1}{2}", r"\frac{-1}{2}", "-1/2", r"\frac{1}{-2}", "-.5", "−0.5"),
        ("4.4e7", "4.4E7", r"4.4 \times 10^7", r"4.4\cdot10^{7}", "4.4*10^7", "44,000,000", r"4.4 × 10^{7}"),
        (r"10^{-3}", "1e-3", "0.001", r"1 \times 10^{-3}"),
        (r"\frac{1}{3}", r"0.\overline{3}", "0.(3)", r"\nicefrac13", r"\frac13=\frac26"),
        ("x=5", "5", "x = 5", "(5)", r"5\text{ cm}", "5 cm", r"5 \mathrm{cm}", r"x=5\text{ cm}"),
        (r"\$32,\!348", "32348", r"\$32{,}348.00", r"32348\text{ dollars}", "32,348"),
        ("90", r"90^\circ", r"90^{\circ}", r"90\text{ degrees}", "90°", r"90 \degree"),
        (r"50\%", "50%", "50", r"50 \text{ percent}"),
        (r"50\%", "0.5", r"\frac{1}{2}"),
        (r"864 \mbox{ inches}^2", r"864\text{ square inches}", r"864\text{ in}^2", "864"),
        ("52_8", "52_{8}", r"52_{\text{eight}}", "52"),
        ("1,-2", "-2, 1", r"\{1,-2\}", r"\{-2, 1\}", r"1 \text{ and } -2", "x=1, x=-2", "1 or -2"),
        (r"\pm 2", "2,-2", "-2, 2", r"x = \pm 2"),
        (r"1 \pm \sqrt{19}", r"1-\sqrt{19}, 1+\sqrt{19}"),
        ("(1,2)", r"\left(1, 2\right)", r"(\frac{2}{2}, 2.0)", r"\big(1,2\big)"),
        (r"\left(\frac{3}{5},\frac{8}{3}\right]", r"(0.6, \frac{8}{3}]"),
        (r"x \in [-2,7]", "[-2,7]", r"x\in\left[-2, 7\right]"),
        (r"\begin{pmatrix} -1/3 \\ 2 \end{pmatrix}", r"\begin{bmatrix}-\frac13\\2\end{bmatrix}"),
        (r"\text{(C)}", "C", "(C)", r"\text{C}", r"\textbf{(C)}"),
        (r"\text{Evelyn}", "evelyn", "Evelyn", r"\textbf{Evelyn}", r"\text{ Evelyn }"),
        ("y = 2x + 3", "y=2x+3", "2x+3"),
    ],
)  # fmt: skip
def test_spellings_of_the_same(spellings: tuple[str, ...]) -> None:
    for spelling in spellings:
        assert equal(spelling, spellings[0]), spelling


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ("1001", "1,000"), ("(1,000)", "1000"), ("11/2", r"1\frac{1}{2}"), ("0.33", r"\frac{1}{3}"),
        ("0.3333334", r"0.3333333"), ("0.5000001", r"\frac{1}{2}"), (r"4.4 \times 10^8", "4.4e7"), ("2e-20", "3e-20"),
        ("-5", "5"), (r"5\text{ m}", r"5\text{ cm}"), ("5 km", r"5\text{ cm}"), (r"5\text{ cm}^2", r"5\text{ cm}"),
        (r"5\%", r"5\text{ cm}"), (r"50\%", "5"), ("52_9", "52_8"), ("42", "52_8"), ("52_8", "52"),
        ("(2,1)", "(1,2)"), ("[1,2)", "(1,2)"), ("[1,2]", "[1,2)"), ("(1,2)", r"\{1,2\}"), ("(1,2,3)", "(1,2)"),
        ("1,2,3", "1,2"), ("1", "1,2"), ("1,1", "1,2"), ("5", "(5,6)"), (r"\pm 2", "2"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&5\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"), ("B", r"\text{(C)}"),
        ("odd", r"\text{even}"), ("3.14", "22/7"), ("", "46"), (" ", "46"), ("9" * 1_000_000, "46"),
    ],
)  # fmt: skip
def test_different_answers(answer: str, accepted: str) -> None:
    assert equal(answer, accepted) is False


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
