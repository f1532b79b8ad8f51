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
from elastic_core.statistics.at_k import Parallel, maj_at_k_values, parallel_problems, pass_at_k_values
from elastic_core.statistics.estimates import problem_table
from reports.summary import cell_problems, summarize_problems
from tests.report_tables import row, table

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


# Parallel thinking, against sampling every subset of the samples.


SAMPLES = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 4), st.sampled_from([None, "4", "5", "6"])), min_size=4, max_size=6
)


def rows_of(samples: list[tuple[int, int, str | None]]) -> pl.DataFrame:
    return table(
        *(
            row(sample=i, think_tokens=thought, solution_tokens=solution, answer=answer, score=float(answer == "4"))
            for i, (thought, solution, answer) in enumerate(samples)
        )
    )


def found(rows: pl.DataFrame, name: str) -> dict[str, float]:
    return parallel_problems(rows, cell_problems(rows), [Parallel.parse(name)]).row(0, named=True)


@given(SAMPLES, st.integers(1, 4), st.integers(1, 3))
def test_the_shortest_of_every_subset_vote(samples: list[tuple[int, int, str | None]], n: int, m: int) -> None:
    m = min(m, n)
    drawn = []
    for subset in combinations(sorted(samples, key=lambda sample: sample[0]), n):
        voters = subset[:m]
        votes = [sum(other[2] == mine[2] and mine[2] is not None for other in voters) for mine in voters]
        winner = voters[votes.index(max(votes))]
        thinking = sum(min(sample[0], voters[-1][0]) for sample in subset)
        drawn.append((winner[2] == "4", thinking, sum(voter[1] for voter in voters)))
    got = found(rows_of(samples), f"short_{m}_at_{n}")
    expected = np.mean(drawn, axis=0)
    assert np.allclose([got["score"], got["think_tokens"], got["solution_tokens"]], expected)
    assert got["tokens"] == pytest.approx(expected[1] + expected[2])


@given(SAMPLES)
def test_one_thought_is_separate_budgeting(samples: list[tuple[int, int, str | None]]) -> None:
    rows = rows_of(samples)
    separate = cell_problems(rows).row(0, named=True)
    for name in ("majority_1", "short_1_at_1"):
        one = found(rows, name)
        assert all(one[key] == pytest.approx(separate[key]) for key in ("score", "tokens", "think_budget"))


def test_n_thoughts_are_charged_n_times_and_lie_beside_separate_budgeting() -> None:
    rows = rows_of([(3, 1, "4"), (5, 1, "4"), (7, 2, "5"), (2, 1, None)])
    cell = summarize_problems(parallel_problems(rows, cell_problems(rows), [Parallel.parse("majority_2")]))
    separate = summarize_problems(cell_problems(rows))
    assert cell["strategy"].item() == "majority_2"
    for column in ("think_budget", "solution_budget", "tokens_mean"):
        assert cell[column].item() == 2 * separate[column].item()


def test_cells_with_too_few_samples_and_other_strategies_have_none() -> None:
    rows = rows_of([(1, 1, "4")] * 4)
    assert parallel_problems(rows, cell_problems(rows), [Parallel.parse("majority_5")]).is_empty()
    vanilla = rows.with_columns(strategy=pl.lit("vanilla"))
    assert parallel_problems(vanilla, cell_problems(vanilla), [Parallel.parse("majority_2")]).is_empty()


@pytest.mark.parametrize("name", ["majority_0", "short_5_at_4", "short_6_at_8", "best_of_4"])
def test_what_is_no_parallel_thinking_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="majority_N, or short_M_at_N"):
        Parallel.parse(name)
