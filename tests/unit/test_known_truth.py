"""Tables that mislead, and what is true of them: the first screen of a report says nothing else."""

import polars as pl
import pytest

from elastic_core.sweep.sound import whole_samples
from tests.known_truth import TRUTHS, half_done


def said(what: str) -> str:
    return TRUTHS[what][1]()


HALF_DONE = [what for what in TRUTHS if what.startswith("trained's sweep is")]


@pytest.mark.parametrize("what", ["rows of wrong samples are missing in trained's budgets", *HALF_DONE])
def test_rows_that_are_not_there_make_no_headline_and_no_advice(what: str) -> None:
    sentences = said(what)
    assert "accurate by" not in sentences and "accurate on" not in sentences
    assert "Serve" not in sentences
    assert "are left out of this report" in sentences or "neither more nor less accurate" in sentences


def test_what_ends_first_is_not_like_the_rest_and_whole_samples_are() -> None:
    def accuracy(rows: pl.DataFrame, model: str) -> float:
        means = rows.filter(model=model, think_budget=64).group_by("problem").agg(pl.col("score").mean())
        return float(means["score"].mean())  # type: ignore[arg-type]

    truth = accuracy(half_done(0.1), "base")
    assert accuracy(half_done(0.1), "trained") > truth + 0.15
    found = whole_samples(half_done(0.6), {"simulated": 100}).rows
    samples = found.filter(model="trained")["sample"].unique().to_list()
    assert samples == list(range(len(samples))) and samples
    same = found.filter(pl.col("sample").is_in(samples))
    assert accuracy(same, "trained") == accuracy(same, "base")


def test_of_ten_equal_models_none_is_said_to_be_better_or_worse() -> None:
    sentences = said("ten models and base, each with draws of its own")
    assert sentences.startswith("Of 10 models compared with base under a token budget, none is shown to differ.")


def test_a_budget_that_saves_nothing_or_is_worth_nothing_is_not_advised_and_it_is_said_why() -> None:
    assert "not shown to save anything" in said("every thought is shorter than every budget")
    assert "not shown to be better than guessing" in said("every response is wrong")


def test_a_budget_that_another_one_beats_is_not_advised() -> None:
    assert "token budget of 64+32" in said("unlimited thinking and 16 tokens are half right, 64 tokens all")


def test_rows_that_cannot_be_are_refused_with_the_rule_and_the_row() -> None:
    assert "(the thinking keeps t), the first is model base, benchmark hard, problem 007" in said(
        "a thought has 99 tokens under t = 16"
    )
    assert "found model base, benchmark hard, problem 000" in said("a row is there twice")
    assert "(the score is in [0, 1]), the first is model base" in said("a score is NaN")


def test_a_problem_that_is_there_ten_times_counts_once() -> None:
    assert said("ten problems, each under ten names").endswith("(10 problems counted)")


def test_models_that_share_no_problem_are_not_compared() -> None:
    assert "on the same problems" in said("base and trained were measured on different problems")


def test_one_problem_tells_nothing() -> None:
    sentences = said("one problem")
    assert "neither more nor less accurate" in sentences and "leave thinking unlimited" in sentences
