"""What the next tokens buy, and the cheapest budget that gives up hardly any accuracy."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.statistics.budgets import budget_advice, marginal_accuracy


def problems(cells: dict[int | None, tuple[float, float]], count: int = 40) -> pl.DataFrame:
    """A problem table by cells: budget → share of right problems, tokens per trajectory. None is unconstrained."""
    rows = [
        {
            "model": "base",
            "benchmark": "hard",
            "strategy": "unconstrained" if t is None else "separate",
            "think_budget": t,
            "solution_budget": None if t is None else 32,
            "problem": f"{i:03}",
            "num_samples": 4,
            "score": float(i < share * count),
            "tokens": tokens + i % 3,
        }
        for t, (share, tokens) in cells.items()
        for i in range(count)
    ]
    types = {"think_budget": pl.Int32, "solution_budget": pl.Int32, "num_samples": pl.Int64, "tokens": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=types)


def test_the_gain_is_per_hundred_tokens_between_neighbours() -> None:
    gains = marginal_accuracy(problems({16: (0.25, 100), 64: (0.5, 150), 128: (0.5, 250)}))
    assert gains.select("think_budget", "next_budget").rows() == [(16, 64), (64, 128)]
    assert gains["gain"].to_list() == pytest.approx([0.5, 0.0])
    assert (gains["low"] <= gains["gain"]).all()
    assert (gains["gain"] <= gains["high"]).all()
    assert gains.select("num_problems", "num_trajectories").row(0) == (40, 320)


def test_a_budget_that_takes_no_more_tokens_buys_nothing() -> None:
    assert marginal_accuracy(problems({16: (0.25, 100), 64: (0.5, 100)})).is_empty()


def test_unconstrained_is_no_rung_and_no_common_problem_is_no_pair() -> None:
    assert marginal_accuracy(problems({16: (0.5, 100), None: (0.5, 200)})).is_empty()
    others = problems({64: (0.5, 20)}).with_columns(problem=pl.format("other {}", "problem"))
    apart = pl.concat([problems({16: (0.5, 10)}), others])
    assert marginal_accuracy(apart).is_empty()


def test_the_cheapest_budget_comes_first_and_says_whether_it_is_within() -> None:
    advice = budget_advice(problems({16: (0.5, 100), 64: (0.9, 150), 128: (0.9, 200), None: (0.9, 400)}, count=200))
    assert advice["think_budget"].to_list() == [16, 64, 128]
    assert advice["within"].to_list() == [False, True, True]
    assert advice["free_tokens"].unique().to_list() == pytest.approx([400 + 199 / 200], abs=0.1)
    assert advice["difference"].to_list() == pytest.approx([-0.4, 0, 0])


def test_equal_scores_on_few_problems_are_within_but_not_surely() -> None:
    table = problems({64: (0.5, 100), None: (0.5, 200)}, count=10)
    others = pl.when(pl.col("strategy") == "unconstrained").then(1 - pl.col("score")).otherwise("score")
    assert budget_advice(table.with_columns(score=others)).select("within", "surely_within").rows() == [(True, False)]


def test_without_unconstrained_responses_there_is_no_advice() -> None:
    assert budget_advice(problems({16: (0.5, 100)})).is_empty()


shares = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


@given(st.lists(st.tuples(shares, st.integers(1, 500)), min_size=1, max_size=4), shares)
def test_surely_within_is_within(cells: list[tuple[float, int]], free: float) -> None:
    table = problems({16 * (i + 1): cell for i, cell in enumerate(cells)} | {None: (free, 600)}, count=8)
    advice = budget_advice(table)
    assert advice.height == len(cells)
    assert advice["tokens"].is_sorted()
    assert advice.filter(pl.col("surely_within") & ~pl.col("within")).is_empty()
    assert (advice["low"] <= advice["difference"]).all()
