"""Which letter a solution chooses."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.rewards import GradeStatus, grade
from elastic_core.rewards.response import chosen_letter
from elastic_core.rewards.truth import LETTERS

CHOSEN = {
    r"\boxed{C}": "C",
    r"\boxed{(C)}": "C",
    r"\boxed{\text{(C)}}": "C",
    r"\boxed{\textbf{C}}": "C",
    r"\boxed{\mathrm{D}}": "D",
    r"\boxed{C) 5 \text{ m}}": "C",
    r"\boxed{C. blue}": "C",
    r"\boxed{\text{C}. x}": "C",
    r"\boxed{Answer: C}": "C",
    r"\boxed{E}": "E",
    r"\boxed{B. vitamins A and D}": "B",
    r"\boxed{C. more or less}": "C",
    r"\boxed{C. 3, 4 or 5}": "C",
    r"\boxed{(D) \text{5 or } 6}": "D",
    "Answer: C": "C",
    "Answer:C": "C",
    "Answer : C": "C",
    "Answer: $C$": "C",
    r"Answer: \(C\)": "C",
    r"Answer: \text{C}": "C",
    "**Answer: C**": "C",
    "**Answer:** C": "C",
    "**Answer**: C": "C",
    "ANSWER: (C).": "C",
    "Answer: C. The reason is A.": "C",
    "Answer: A, because B is wrong": "A",
    "Answer: A because it is": "A",
    "answer: A\n\nbecause": "A",
    "Answer: E": "E",
    "The answer is (C)": "C",
    "The answer is C.": "C",
    "The answer is C because": "C",
    "The answer is C) 5": "C",
    "the correct answer is **C**": "C",
    "**The answer is D**": "D",
    "answer is: D": "D",
    "the best choice would be B": "B",
    "I think option B is correct": "B",
    "option A is correct": "A",
    "Option (B) is the correct one": "B",
    "The right choice is\n\n$\\boxed{B}$": "B",
}
NOTHING = (
    "",
    "C",
    "Answer: c",
    "Answer: Apple",
    "Answer: A cat",
    "the answer is a number",
    "The answer is A number",
    "A is first, B is second",
    "Answer: A-B",
    "Answer: A'",
    "Answer: B and C",
    "the answer is $A = 5$",
    r"\boxed{5}",
    r"\boxed{Cat}",
    r"\boxed{A cat}",
    r"\boxed{A + B}",
    r"\boxed{(A), (B)}",
    r"\boxed{A. x (or B)}",
    r"\boxed{\text{(A) x or (B)}}",
    r"\boxed{A. x or B}",
    r"\boxed{A. x, B. y}",
    r"\boxed{(A) x and (B) y}",
    "Answer: A (or B)",
    "Answer: (A) [or B]",
    "The answer is A (and B).",
    r"\boxed{}",
)


@pytest.mark.parametrize(("text", "letter"), CHOSEN.items())
def test_a_letter_is_read(text: str, letter: str) -> None:
    assert chosen_letter(f"A is wrong. {text}") == letter


@pytest.mark.parametrize("text", NOTHING)
def test_what_is_no_choice_is_no_answer_and_never_a(text: str) -> None:
    assert grade("choice", f"</think>{text}", "A") == (0.0, GradeStatus.NO_ANSWER, None)


def test_the_last_of_a_kind_counts_and_a_box_counts_before_words() -> None:
    assert chosen_letter("Answer: A\nNo, wait.\nAnswer: B") == "B"
    assert chosen_letter(r"\boxed{A} no: \boxed{B}") == "B"
    assert chosen_letter(r"So \boxed{C}. Answer: D") == "C"
    assert chosen_letter(r"Answer: D, since the answer is C to nothing") == "D"
    assert chosen_letter(r"x = \boxed{5}, hence Answer: D") == "D"


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("truth", LETTERS)
def test_only_the_right_letter_scores(letter: str, truth: str) -> None:
    status = GradeStatus.CORRECT if letter == truth else GradeStatus.WRONG
    assert grade("choice", f"</think>Answer: {letter}", truth) == (float(letter == truth), status, letter)


def test_only_the_solution_counts() -> None:
    assert grade("choice", "Answer: A</think>I do not know", "A").status is GradeStatus.NO_ANSWER
    assert grade("choice", "Answer: A", "A").status is GradeStatus.TRUNCATED
    assert grade("choice", r"</think>\boxed{E}", "A") == (0.0, GradeStatus.WRONG, "E")


@pytest.mark.parametrize("truth", ["E", "a", "", "AB"])
def test_a_truth_that_is_no_letter_is_refused(truth: str) -> None:
    with pytest.raises(ValueError, match="A, B, C, D"):
        grade("choice", "</think>Answer: A", truth)


@given(st.text(alphabet="abdefghijklmnopqrstuvwxyz .,:$*()\\{}\n"))
def test_without_a_capital_letter_there_is_no_choice(text: str) -> None:
    assert chosen_letter(text) is None


@pytest.mark.parametrize(
    "part", ["Answer:", "answer is ", "*", "(", r"\boxed{", "option ", "Answer: $", " ", r"\boxed{(", "choice **"]
)
def test_time_is_linear_in_the_text(part: str) -> None:
    started = time.process_time()
    chosen_letter(f"Answer:{part * (100_000 // len(part))}")
    chosen_letter(f"\\boxed{{{part * (100_000 // len(part))}}}")
    assert time.process_time() - started < 30
