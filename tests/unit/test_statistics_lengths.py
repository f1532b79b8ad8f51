"""Tokens by phase, forced fraction and length error."""

import numpy as np
import polars as pl
import pytest

from elastic_core.statistics import forced_fraction, length_error, tokens_by_phase


def responses(**columns: list[object]) -> pl.DataFrame:
    """Rows of one cell at 16+32; a problem each, unless given."""
    height = len(next(iter(columns.values())))
    defaults = {
        "problem": [f"{i:02}" for i in range(height)],
        "think_budget": [16] * height,
        "solution_budget": [32] * height,
        "think_tokens": [16] * height,
        "solution_tokens": [10] * height,
        "forced_tokens": [1] * height,
        "think_finish": ["forced"] * height,
    }
    return pl.DataFrame(defaults | columns)


def test_tokens_are_means_over_problems_and_forced_ones_are_apart() -> None:
    rows = responses(problem=["a", "a", "a", "b"], think_tokens=[4, 4, 4, 8], forced_tokens=[1, 0, 2, 5])
    tokens = tokens_by_phase(rows)
    assert (tokens.think.mean, tokens.solution.mean, tokens.total.mean, tokens.forced.mean) == (6, 10, 16, 3)
    assert tokens.total[3:] == (2, 4)


def test_token_intervals_are_of_the_problems_and_never_below_zero() -> None:
    tokens = tokens_by_phase(responses(think_tokens=[0, 0, 0, 12], solution_tokens=[10, 12, 14, 16]))
    assert tokens.think.low == 0
    assert tokens.solution[:3] == pytest.approx((13, 13 - 4.108, 13 + 4.108), abs=0.1)


def test_one_problem_bounds_no_length() -> None:
    assert tokens_by_phase(responses(think_tokens=[8])).think[:3] == (8, 0, np.inf)


@pytest.mark.parametrize(("finish", "fraction"), [("forced", 1.0), ("closed", 0.0)])
def test_all_forced_and_none_forced_leave_room(finish: str, fraction: float) -> None:
    forced = forced_fraction(responses(think_finish=[finish] * 30))
    assert forced.mean == fraction
    assert 0.05 < forced.high - forced.low < 0.15


def test_a_thought_left_as_it_stopped_is_not_forced() -> None:
    rows = responses(think_finish=["end_of_text", "end_of_text", "length"], forced_tokens=[1, 0, 0])
    assert forced_fraction(rows).mean == pytest.approx(1 / 3)


def test_the_length_error_is_signed_and_counts_all_sampled_tokens() -> None:
    error = length_error(responses(think_tokens=[48, 40, 50], solution_tokens=[10, 2, 4]))
    assert error.mean == pytest.approx((10 - 6 + 6) / 3)
    assert error.low < 0 < error.high


def test_an_unlimited_budget_asks_for_no_length() -> None:
    with pytest.raises(ValueError, match="error"):
        length_error(responses(think_budget=[None, 16]))
