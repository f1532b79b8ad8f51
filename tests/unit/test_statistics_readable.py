"""A model that never answers, or never closes a thought, is told apart from one that is only wrong."""

import polars as pl

from elastic_core.statistics import Readable, readable, unreadable


def rows(*responses: tuple[str, str, str]) -> pl.DataFrame:
    return pl.DataFrame(responses, schema=["model", "think_finish", "grade_status"], orient="row")


def test_answers_and_closed_thoughts_are_counted_by_model() -> None:
    table = rows(
        ("base", "closed", "correct"),
        ("base", "forced", "wrong"),
        ("base", "length", "truncated"),
        ("base", "not_applicable", "no_answer"),
        ("other", "end_of_text", "timeout"),
    )
    assert readable(table) == [Readable("base", 4, 2, 3, 1), Readable("other", 1, 1, 1, 0)]


def test_a_model_that_answers_and_closes_its_thoughts_needs_no_remark() -> None:
    assert unreadable(Readable("base", 100, 1, 100, 1)) == []
    assert unreadable(Readable("no thinking", 100, 1, 0, 0)) == []


def test_what_is_missing_is_named_with_how_many_responses_lack_it() -> None:
    answers, thoughts = unreadable(Readable("base", 1260, 0, 1200, 0))
    assert answers.startswith("None of the 1,260 responses of base holds an answer") and "fine-tuning" in answers
    assert thoughts.startswith("None of the 1,200 thoughts of base was closed") and "thinking budgets" in thoughts
