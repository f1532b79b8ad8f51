"""Parallel thinking as a statistic: against drawing every subset of the samples."""

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.statistics.at_k import Parallel, parallel_problems
from reports.summary import cell_problems, summarize_problems
from tests.report_tables import row, table

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
