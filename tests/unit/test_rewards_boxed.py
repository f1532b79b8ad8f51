"""What counts as the answer of a solution."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.rewards.response import last_boxed


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{46}", "46"),
        (r"\fbox{46}", "46"),
        (r"\boxed{ 46 }", "46"),
        (r"\boxed {46}", "46"),
        ("\\boxed\n{46}", "46"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{x\right.}", r"\left\{x\right."),
        (r"\boxed{\begin{pmatrix}1\\{2}\end{pmatrix}}", r"\begin{pmatrix}1\\{2}\end{pmatrix}"),
        (r"\boxed 5", "5"),
        (r"$\boxed 5$ so", "5"),
        (r"\boxed{}", ""),
        (r"\boxed{1} and \boxed{2}", "2"),
        (r"\fbox{1} and \boxed{2}", "2"),
        (r"\boxed{1} and \fbox{2}", "2"),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"\boxed{1 and \boxed{2}", "2"),
        (r"\boxed{\boxed{46}}", "46"),
        (r"} } \boxed{46}", "46"),
        (r"{ { \boxed{46}", "46"),
        (r"\boxed{46", None),
        (r"\boxed", None),
        (r"\boxed{46\}", None),
        (r"\boxedanswer{46}", None),
        (r"46", None),
        ("", None),
    ],
)
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


@pytest.mark.parametrize("part", [r"\boxed{", "{", "}", r"\boxed{1}", "\\", r"\boxed ", r"\boxed{\boxed "])
def test_time_is_linear_in_the_text(part: str) -> None:
    started = time.process_time()
    last_boxed(part * (1_000_000 // len(part)))
    assert time.process_time() - started < 30
