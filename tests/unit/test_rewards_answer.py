"""What of a solution is its answer: the letter that it chooses, the last box, the last block of code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.rewards import GradeStatus, grade
from elastic_core.rewards.response import chosen_letter, extract_code, last_boxed
from elastic_core.rewards.truth import LETTERS

CHOSEN = {
    "A": (
        "Answer: A, because B is wrong", "Answer: A because it is", "answer: A\n\nbecause", "option A is correct",
    ),
    "B": (
        r"\boxed{B. vitamins A and D}", "the best choice would be B", "I think option B is correct",
        "Option (B) is the correct one", "The right choice is\n\n$\\boxed{B}$",
    ),
    "C": (
        r"\boxed{C}", r"\boxed{(C)}", r"\boxed{\text{(C)}}", r"\boxed{\textbf{C}}", r"\boxed{C) 5 \text{ m}}",
        r"\boxed{C. blue}", r"\boxed{\text{C}. x}", r"\boxed{Answer: C}", r"\boxed{C. more or less}",
        r"\boxed{C. 3, 4 or 5}", "Answer: C", "Answer:C", "Answer : C", "Answer: $C$", r"Answer: \(C\)",
        r"Answer: \text{C}", "**Answer: C**", "**Answer:** C", "**Answer**: C", "ANSWER: (C).",
        "Answer: C. The reason is A.", "The answer is (C)", "The answer is C.", "The answer is C because",
        "The answer is C) 5", "the correct answer is **C**",
    ),
    "D": (
        r"\boxed{\mathrm{D}}", r"\boxed{(D) \text{5 or } 6}", "**The answer is D**", "answer is: D",
    ),
    "E": (
        r"\boxed{E}", "Answer: E",
    ),
}  # fmt: skip
NOTHING = (
    "", "C", "Answer: c", "Answer: Apple", "Answer: A cat", "the answer is a number", "The answer is A number",
    "A is first, B is second", "Answer: A-B", "Answer: A'", "Answer: B and C", "the answer is $A = 5$", r"\boxed{5}",
    r"\boxed{Cat}", r"\boxed{A cat}", r"\boxed{A + B}", r"\boxed{(A), (B)}", r"\boxed{A. x (or B)}",
    r"\boxed{\text{(A) x or (B)}}", r"\boxed{A. x or B}", r"\boxed{A. x, B. y}", r"\boxed{(A) x and (B) y}",
    "Answer: A (or B)", "Answer: (A) [or B]", "The answer is A (and B).", r"\boxed{}",
)  # fmt: skip


@pytest.mark.parametrize(("text", "letter"), [(text, letter) for letter, texts in CHOSEN.items() for text in texts])
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


# The last box.


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{46}", "46"), (r"\fbox{46}", "46"), (r"\boxed{ 46 }", "46"), (r"\boxed {46}", "46"),
        ("\\boxed\n{46}", "46"), (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"), (r"\boxed{\left\{x\right.}", r"\left\{x\right."),
        (r"\boxed{\begin{pmatrix}1\\{2}\end{pmatrix}}", r"\begin{pmatrix}1\\{2}\end{pmatrix}"), (r"\boxed 5", "5"),
        (r"$\boxed 5$ so", "5"), (r"\boxed{}", ""), (r"\boxed{1} and \boxed{2}", "2"),
        (r"\fbox{1} and \boxed{2}", "2"), (r"\boxed{1} and \fbox{2}", "2"), (r"\boxed{1} and \boxed{2", "1"),
        (r"\boxed{1 and \boxed{2}", "2"), (r"\boxed{\boxed{46}}", "46"), (r"} } \boxed{46}", "46"),
        (r"{ { \boxed{46}", "46"), (r"\boxed{46", None), (r"\boxed", None), (r"\boxed{46\}", None),
        (r"\boxedanswer{46}", None), (r"46", None), ("", None),
    ],
)  # fmt: skip
def test_the_last_box_that_is_closed_counts(text: str, answer: str | None) -> None:
    assert last_boxed(text) == answer


@given(st.lists(st.sampled_from(["\\boxed", "\\", "{", "}", " ", "1"]), max_size=30).map("".join))
def test_whatever_else_it_holds_the_last_box_counts(text: str) -> None:
    last_boxed(text)
    assert last_boxed(f"{text}}} \\boxed{{46}}") == "46"


@given(
    st.recursive(
        st.text("1x+", max_size=3), lambda inner: st.lists(inner, max_size=3).map(lambda p: f"{{{''.join(p)}}}")
    )
)
def test_whatever_has_paired_braces_comes_back(content: str) -> None:
    assert last_boxed(rf"first \boxed{{0}}, then \boxed{{{content}}}.") == content


# The program.


@pytest.mark.parametrize(
    "solution, code",
    [
        ("```python\nx = 1\n```", "x = 1"),
        ("```py\nx\n```", "x"),
        ("```python3\nx\n```", "x"),
        ("```\nx\n```", "x"),
        ("```cpp title=a.cpp\nx\n```", "x"),
        ("```python\na\n```\nor\n```python\nb\n```\nend", "b"),
        ("```python\na\n```\n```python\nb", "a"),
        ("```python\na\n```python\nb\n```", "b"),
        ("```python\na\n\nb\n```", "a\n\nb"),
        ("```python\n```", ""),
        ("```python\nprint(1)```", "print(1)"),
        ("1. So:\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''"),
        ("```python\r\nx\r\n```\r\n", "x\r"),
        ("```python\nx = '`'\n```", "x = '`'"),
        ("Use ```x``` like this:\n```\ny\n```", "y"),
        ("~~~python\nx\n~~~", "x"),
        ("~~~~\nprint('~~~')\n~~~\n~~~~", "print('~~~')\n~~~"),
        ("~~~\nx\n```", None),
        ("~~~markdown\n```python\nx\n```\n~~~", "x"),
        ('```python\ns = """\n~~~ title\n"""\n```', 's = """\n~~~ title\n"""'),
        # Output, a shell or another language after the program.
        ("```python\na\n```\nOutput:\n```\n3\n4\n```", "a"),
        ("```python\na\n```\n```text\nprint 3\n```", "a"),
        ("```Python 3\na\n```\n```bash\npython a.py\n```", "a"),
        ("```{.py}\na\n```\n```cpp\nint main() {}\n```", "a"),
        ("```\nprint(1)\n```\nprints\n```\n1\n```", "print(1)"),
        ("```\nprint(1)\n```\n```\n$ python -c 'print(1)'\n```", "print(1)"),
        ("```python\ndef f(): pass\n```\n```\n>>> print(f())\nNone\n```", "def f(): pass"),
        ("```python\na\n```\n```python-repl\n>>> a\n```\n```pycon\n>>> a\n```", "a"),
        ("```python\na\n```\nCost:\n```\nclass P, we write O(n)\nno import, a def\n```", "a"),
        ("```python\na\n```\n```\nclass Solution { int f() {} }\n```", "a"),
        ("```python\na\n```\n```\n*map(print, f),\n```", "*map(print, f),"),
        ("```[python]\na\n```\n```\n3\n```", "a"),
        ("```src/main.py\na\n```\n```text a.py\n3\n```", "a"),
        ("```python_code\na\n```\n```\n3\n```", "a"),
        # Tildes that underline.
        ("Solution\n~~~~~~~~\n```\nprint(1)\n```", "print(1)"),
        ("    f(x)\n    ~~~^~~\n```\nprint(1)\n```", "print(1)"),
        # The last that could be a program, though a draft says that it is one.
        ("```python\na\n```\nBetter:\n```\ndef f(): pass\n```", "def f(): pass"),
        ("```\nf = lambda x: x\n```\n```sh\npython a.py\n```", "f = lambda x: x"),
        ("```sh\na\n```\n```\nb\n```", "b"),
        ("```\nf = sorted\n```\n```text\n[1]\n```\n```\n>>> f([1])\n```", "f = sorted"),
        ("```text\nprint(1)\n```", "print(1)"),
        ("no block", None),
        ("", None),
        ("```python\nx = 1", None),
        ("x = 1\n```", None),
        ("`x`", None),
    ],
)
def test_the_last_complete_block_of_python_is_the_program(solution: str, code: str | None) -> None:
    assert extract_code(solution) == code


@given(st.text(alphabet="`~px \n", max_size=60))
def test_any_text_has_a_program_or_none(solution: str) -> None:
    code = extract_code(solution)
    assert code is None or max(solution.count(fence) for fence in ("```", "~~~")) >= 2
