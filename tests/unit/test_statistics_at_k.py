"""pass@k and maj@k: against every subset one by one, and how they change with k."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from random import Random

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.at_k import maj_at_k_values, pass_at_k_values
from elastic_core.statistics.estimates import problem_table

# A problem's samples: an answer has one score, and none, when it could not be read.
SCORES = {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.5, None: 0.0}
samples = st.lists(st.sampled_from(list(SCORES)), min_size=1, max_size=5)
tables = st.lists(samples, min_size=1, max_size=8)


def voted(problems: list[list[str | None]]) -> pl.DataFrame:
    """Rows of these answers, a list per problem, with the score that each answer has."""
    rows = [(f"{i:02}", answer, SCORES[answer]) for i, answers in enumerate(problems) for answer in answers]
    return pl.DataFrame(rows, schema={"problem": pl.String, "answer": pl.String, "score": pl.Float64}, orient="row")


def problem_pass_at_k(rows: pl.DataFrame, k: int, by: Sequence[str] = ()) -> pl.DataFrame:
    return beside(rows, by, pass_at_k_values(rows, k, [*by, "problem"]))


def problem_maj_at_k(rows: pl.DataFrame, k: int, by: Sequence[str] = ()) -> pl.DataFrame:
    return beside(rows, by, maj_at_k_values(rows, k, [*by, "problem"]))


def beside(rows: pl.DataFrame, by: Sequence[str], values: pl.DataFrame) -> pl.DataFrame:
    problems = problem_table(rows, ["score"], by)
    return problems.join(values, on=[*by, "problem"], how="left", nulls_equal=True, maintain_order="left")


def vote(answers: tuple[str | None, ...]) -> float:
    """Expected score of the majority, ties shared."""
    counts = Counter(answer for answer in answers if answer is not None)
    winners = [SCORES[answer] for answer in counts if counts[answer] == max(counts.values())]
    return float(np.mean(winners)) if winners else 0.0


@given(samples)
def test_both_are_the_mean_over_every_subset(answers: list[str | None]) -> None:
    rows = voted([answers])
    for k in range(1, len(answers) + 1):
        subsets = list(combinations(answers, k))
        best = np.mean([max(SCORES[answer] for answer in subset) for subset in subsets])
        assert problem_pass_at_k(rows, k)["pass_at_k"].item() == pytest.approx(best)
        won = np.mean([vote(subset) for subset in subsets])
        assert problem_maj_at_k(rows, k)["maj_at_k"].item() == pytest.approx(won)


@given(tables)
def test_pass_at_k_grows_with_k_and_is_never_below_the_vote(problems: list[list[str | None]]) -> None:
    rows = voted(problems)
    ks = range(1, min(map(len, problems)) + 1)
    passes = np.array([problem_pass_at_k(rows, k)["pass_at_k"] for k in ks])
    votes = np.array([problem_maj_at_k(rows, k)["maj_at_k"] for k in ks])
    assert np.all(np.diff(passes, axis=0) >= -1e-12)
    assert np.all(votes <= passes + 1e-12)


@given(tables, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(problems: list[list[str | None]], random: Random) -> None:
    rows = voted(problems)
    order = list(range(rows.height))
    random.shuffle(order)
    k = min(map(len, problems))
    for statistic in (problem_pass_at_k, problem_maj_at_k):
        assert_frame_equal(statistic(rows[order], k), statistic(rows, k))


def test_problems_may_have_different_numbers_of_samples_and_count_the_same() -> None:
    rows = voted([["a"] * 9, ["b", "b"]])
    for statistic, column in ((problem_pass_at_k, "pass_at_k"), (problem_maj_at_k, "maj_at_k")):
        assert mean_score(statistic(rows, 2), column)[:1] == (0.5,)
        assert mean_score(statistic(rows, 2), column)[3:5] == (2, 11)


def test_a_vote_scores_what_rows_with_its_answer_score_on_average() -> None:
    rows = pl.DataFrame({"problem": ["x"] * 3, "answer": ["a", "a", "b"], "score": [1.0, 0.0, 0.0]})
    assert problem_maj_at_k(rows, 3)["maj_at_k"].item() == 0.5


def test_groups_are_kept_apart_and_a_null_budget_is_one() -> None:
    rows = pl.concat(
        voted([["a", "b"]]).with_columns(think_budget=pl.lit(budget, pl.Int32), score=pl.lit(score))
        for budget, score in ((16, 0.0), (None, 1.0))
    )
    for statistic, column in ((problem_pass_at_k, "pass_at_k"), (problem_maj_at_k, "maj_at_k")):
        values = statistic(rows, 2, by=["think_budget"]).select("think_budget", column)
        assert set(values.rows()) == {(16, 0.0), (None, 1.0)}
