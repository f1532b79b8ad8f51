"""pass@k and maj@k: against every subset one by one, at the ends of k, and coverage by simulation."""

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

from elastic_core.statistics.accuracy import avg_at_k, mean_score
from elastic_core.statistics.at_k import maj_at_k_values, pass_at_k_values
from elastic_core.statistics.estimates import problem_table
from elastic_core.statistics.intervals import Estimate
from tests.unit.test_statistics import clustered, table

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


def pass_at_k(rows: pl.DataFrame, k: int) -> Estimate:
    return mean_score(problem_pass_at_k(rows, k), "pass_at_k")


def maj_at_k(rows: pl.DataFrame, k: int) -> Estimate:
    return mean_score(problem_maj_at_k(rows, k), "maj_at_k")


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
def test_at_1_both_are_avg_at_k(problems: list[list[str | None]]) -> None:
    rows = voted(problems)
    assert pass_at_k(rows, 1).mean == pytest.approx(avg_at_k(rows).mean)
    assert maj_at_k(rows, 1).mean == pytest.approx(avg_at_k(rows).mean)


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


@given(tables)
def test_the_interval_holds_the_estimate_within_0_and_1_and_has_a_width(problems: list[list[str | None]]) -> None:
    rows = voted(problems)
    for statistic in (pass_at_k, maj_at_k):
        estimate = statistic(rows, 1)
        assert 0 <= estimate.low <= estimate.mean <= estimate.high <= 1
        assert estimate.low < estimate.high
        assert estimate == statistic(rows, 1)  # resamples are seeded


def test_one_right_of_four_passes_half_the_pairs() -> None:
    assert pass_at_k(table(np.array([[1, 0, 0, 0]])), 2).mean == pytest.approx(0.5)


def test_problems_may_have_different_numbers_of_samples_and_count_the_same() -> None:
    rows = voted([["a"] * 9, ["b", "b"]])
    assert pass_at_k(rows, 2)[:1] == maj_at_k(rows, 2)[:1] == (0.5,)
    assert pass_at_k(rows, 2)[3:5] == (2, 11)


def test_answers_that_could_not_be_read_do_not_vote() -> None:
    assert maj_at_k(voted([[None, None, None, "a"]]), 4).mean == 1
    assert maj_at_k(voted([[None, None]]), 2).mean == 0


def test_answers_that_all_differ_leave_avg_at_k() -> None:
    rows = voted([["a", "b", "c", "d"]])
    assert [maj_at_k(rows, k).mean for k in (1, 2, 3, 4)] == pytest.approx([avg_at_k(rows).mean] * 4)


def test_a_vote_scores_what_rows_with_its_answer_score_on_average() -> None:
    rows = pl.DataFrame({"problem": ["x"] * 3, "answer": ["a", "a", "b"], "score": [1.0, 0.0, 0.0]})
    assert maj_at_k(rows, 3).mean == 0.5


def test_voting_repairs_a_majority_and_ruins_a_minority() -> None:
    rows = voted([["a"] * 5 + ["b"] * 3, ["a"] * 3 + ["b"] * 5])
    votes = problem_maj_at_k(rows, 8)
    assert votes["maj_at_k"].to_list() == [1.0, 0.0]
    assert 0.5 < problem_maj_at_k(rows, 4)["maj_at_k"][0] < 1


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_all_wrong_and_all_right_leave_room(score: float) -> None:
    rows = table(np.full((30, 8), score)).with_columns(answer=pl.lit("7"))
    for statistic in (pass_at_k, maj_at_k):
        estimate = statistic(rows, 8)
        assert estimate.mean == score
        assert 0.05 < estimate.high - estimate.low < 0.15


def test_one_problem_bounds_nearly_nothing() -> None:
    assert pass_at_k(table(np.ones((1, 4))), 4)[:3] == pytest.approx((1.0, 0.0, 1.0), abs=0.01)


def test_groups_are_kept_apart_and_a_null_budget_is_one() -> None:
    rows = pl.concat(
        voted([["a", "b"]]).with_columns(think_budget=pl.lit(budget, pl.Int32), score=pl.lit(score))
        for budget, score in ((16, 0.0), (None, 1.0))
    )
    for statistic, column in ((problem_pass_at_k, "pass_at_k"), (problem_maj_at_k, "maj_at_k")):
        values = statistic(rows, 2, by=["think_budget"]).select("think_budget", column)
        assert set(values.rows()) == {(16, 0.0), (None, 1.0)}


@pytest.mark.parametrize(("p", "correlation", "problems"), [(0.05, 0.3, 30), (0.3, 0.5, 30), (0.9, 0.5, 100)])
def test_intervals_cover_the_truth(p: float, correlation: float, problems: int) -> None:
    rng = np.random.default_rng(0)
    truth = problem_pass_at_k(clustered(rng, p, correlation, 20_000, 8), 4)["pass_at_k"].mean()
    estimates = [pass_at_k(clustered(rng, p, correlation, problems, 8), 4) for _ in range(100)]
    assert np.mean([estimate.low <= truth <= estimate.high for estimate in estimates]) >= 0.92
