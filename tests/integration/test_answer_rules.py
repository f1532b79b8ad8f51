"""The rules by which mathematical answers are right: what a careful human marker would do, each with its examples.

The table of docs/grading.md has them in words, each with examples, and answer_rules.md has more of each.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from elastic_core.rewards import Answer, GradeStatus, grade_many
from tests.documents import page, table


class Rule(NamedTuple):
    """An accepted answer, answers that are right by it, and answers that are wrong."""

    accepted: str
    right: list[str]
    wrong: list[str]


def by_name(text: str) -> dict[str, list[Rule]]:
    """The rules of a table, by what it has in bold."""
    rules = defaultdict(list)
    for words, (accepted,), right, wrong in table(text):
        rules[words].append(Rule(accepted, right, wrong))
    return rules


DOCUMENTED = by_name(
    page("grading").read_text().partition("## When a mathematical answer is right")[2].partition("\n## ")[0]
)
MORE = by_name(Path(__file__).with_name("answer_rules.md").read_text())


def test_every_rule_is_a_row_of_the_table() -> None:
    assert MORE.keys() <= DOCUMENTED.keys()
    assert len(DOCUMENTED) > 20
    assert all(rule.right and rule.wrong for (rule,) in DOCUMENTED.values())


@pytest.mark.parametrize("rule", DOCUMENTED)
@pytest.mark.usefixtures("patient")
def test_answers_are_marked_as_a_careful_human_marks_them(rule: str) -> None:
    cases = [
        (answer, one.accepted, expected)
        for one in (*DOCUMENTED[rule], *MORE.get(rule, ()))
        for answers, expected in (((one.accepted, *one.right), GradeStatus.CORRECT), (one.wrong, GradeStatus.WRONG))
        for answer in answers
    ]
    grades = grade_many([Answer("math", f"</think>\\boxed{{{answer}}}", accepted) for answer, accepted, _ in cases])
    assert [case for case, graded in zip(cases, grades, strict=True) if graded.status is not case[2]] == []
