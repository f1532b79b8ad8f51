"""Prompts, word for word as the paper's models expect them."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.data.dataset import PROBLEMS
from elastic_core.data.problems import TEMPLATES
from elastic_core.data.registry import REGISTRY

texts = st.text(max_size=30)


def prompt(name: str, question: str, starter_code: str | None = None) -> str:
    rows = pl.DataFrame(
        {"question": [question], "starter_code": [starter_code]}, schema_overrides={"starter_code": pl.String}
    )
    return rows.select(TEMPLATES[name].render()).item()


def test_mathematics_asks_as_deepscaler_and_e1_do() -> None:
    expected = "What is $1+1$? Let's think step by step and output the final answer within \\boxed{}."
    assert prompt("boxed-v1", "What is $1+1$?") == expected
    assert prompt("plain-v1", "What is $1+1$?") == "What is $1+1$?"


def test_livecodebench_asks_as_deepcoder_does() -> None:
    system = (
        "You are an expert Python programmer. You will be given a question (problem specification) and will generate "
        "a correct Python program that matches the specification and passes all tests.\n\n"
    )
    stdin = (
        "### Format: Read the inputs from stdin solve the problem and write the answer to stdout (do not directly "
        "test on the sample inputs). Enclose your code within delimiters as follows. Ensure that when the python "
        "program runs, it reads the inputs, runs the algorithm and writes output to STDOUT.\n"
        "```python\n# YOUR CODE HERE\n```\n\n"
    )
    starter = (
        "### Format: You will use the following starter code to write the solution to the problem and enclose your "
        "code within delimiters.\n```python\nclass Solution:\n```\n\n"
    )
    answer = "### Answer: (use the provided format with backticks)\n\n"
    assert prompt("livecodebench-v1", "Sort.") == f"{system}Sort.{stdin}{answer}"
    assert prompt("livecodebench-v1", "Sort.", "class Solution:") == f"{system}Sort.{starter}{answer}"


@pytest.mark.parametrize("name", TEMPLATES)
@given(question=texts, starter_code=texts)
def test_a_placeholder_inside_a_question_is_text(name: str, question: str, starter_code: str) -> None:
    odd = question + "{starter_code}{question}"
    assert prompt(name, odd, starter_code).count(odd) == 1


def test_every_problem_of_the_registry_has_a_template_and_a_grader() -> None:
    for entry in REGISTRY.values():
        assert (entry.prompt in TEMPLATES) == (entry.grader is not None) == (entry.form == "problems"), entry.name
    assert PROBLEMS.names() == ["id", "question", "starter_code", "truth", "cluster", "row"]


def test_the_documents_list_every_data_set() -> None:
    readme = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text()
    for name, entry in REGISTRY.items():
        assert f"`{name}`" in readme or f"`{name.removeprefix('miniature')}`" in readme, name
        assert not entry.rows or f"{entry.rows:,}" in readme, name
