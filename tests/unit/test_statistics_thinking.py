"""Where the thinking goes: b* of a problem, and the three parts of its tokens."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.statistics.responses import thinking_spent
from tests.tables import frame


def ladder(scores: dict[str, dict[int | None, list[float]]], thought: int = 100) -> pl.DataFrame:
    """Rows of one model under `separate` by problem and budget: a score per sample, every thought of one length.

    A budget of None is the unconstrained cell.
    """
    return frame(
        {
            "model": "base", "benchmark": "hard", "problem": problem, "sample": sample, "think_budget": t,
            "strategy": "unconstrained" if t is None else "separate", "solution_budget": None if t is None else 32,
            "think_tokens": thought if t is None else min(t, thought), "score": score,
            "forced_tokens": int(t is not None and t < thought),
            "think_finish": "forced" if t is not None and t < thought else "closed",
        }
        for problem, rungs in scores.items()
        for t, samples in rungs.items()
        for sample, score in enumerate(samples)
    )  # fmt: skip


def solved(rows: pl.DataFrame) -> dict[int | None, float]:
    """The share of problems that are solved within each budget."""
    return dict(thinking_spent(rows).select("think_budget", "solved_within").iter_rows())


def test_the_smallest_budget_from_which_on_this_and_every_larger_one_suffice() -> None:
    rows = ladder({"a": {16: [0, 0], 32: [1, 0.5], 64: [1, 1]}, "b": {16: [1, 1], 32: [0, 0], 64: [1, 1]}})
    assert solved(rows) == {16: 0, 32: 0.5, 64: 1}


def test_what_one_half_of_the_samples_says_has_to_hold_in_the_other() -> None:
    # At 16 only the first sample is right: one half says that it suffices, the other that it does not.
    assert solved(ladder({"a": {16: [1, 0], 64: [1, 1]}})) == {16: 0, 64: 1}


def test_half_of_the_samples_right_on_every_rung_is_no_problem_solved_for_sure() -> None:
    # Every problem is right half of the time whatever the budget; on the same samples all would count as solved.
    random = np.random.default_rng(0)
    rungs = [0, 16, 32, 48]
    rows = ladder({f"{i}": {t: list(random.integers(0, 2, 8)) for t in rungs} for i in range(100)})
    assert 0.1 < solved(rows)[48] < 0.6


def test_unlimited_thinking_is_the_last_rung_and_never_solved_has_no_budget() -> None:
    rows = ladder({"free": {16: [0, 0], None: [1, 1]}, "never": {16: [0, 0], None: [0, 0]}})
    assert solved(rows) == {16: 0, None: 0.5}


def test_a_problem_that_a_rung_or_a_half_lacks_is_left_out() -> None:
    rows = ladder({"a": {16: [1, 1], 32: [1, 1]}, "b": {16: [0, 0]}, "c": {16: [0], 32: [0]}})
    assert solved(rows) == {16: 1, 32: 1}
    assert thinking_spent(rows)["num_problems"].to_list() == [1, 1]
    assert thinking_spent(ladder({"a": {16: [1], 32: [1]}})).is_empty()
    assert thinking_spent(ladder({"a": {None: [1, 1]}})).is_empty(), "without a ladder"
    with pytest.raises(ValueError, match="outside"):
        thinking_spent(ladder({"a": {16: [2, 2]}}))


def test_tokens_past_what_was_needed_are_overthinking_and_those_of_the_unsolved_futile() -> None:
    rows = ladder({"solved": {16: [0, 0], 64: [1, 1], None: [1, 1]}, "never": {16: [0, 0], 64: [0, 0], None: [0, 0]}})
    spent = thinking_spent(rows)
    # Two problems: every part is halved by the mean over them.
    assert spent["think_budget"].to_list() == [16, 64, None]
    assert spent["needed"].to_list() == [8, 32, 32]
    assert spent["overthinking"].to_list() == [0, 0, 18]
    assert spent["futile"].to_list() == [8, 32, 50]
    assert spent["starved"].to_list() == [0.5, 0, 0]
    assert spent["solved_within"].to_list() == [0, 0.5, 0.5]
    assert spent["num_problems"].to_list() == [2, 2, 2]


def test_a_thought_that_ended_by_itself_is_not_starved() -> None:
    rows = ladder({"a": {16: [0, 0], 64: [1, 1]}}, thought=10)
    assert thinking_spent(rows)["starved"].to_list() == [0, 0]


def test_vanilla_truncation_starves_too() -> None:
    rows = ladder({"a": {16: [0, 0], 64: [1, 1]}}).with_columns(
        strategy=pl.lit("vanilla"), forced_tokens=pl.lit(0, pl.Int32), think_finish=pl.lit("length")
    )
    assert thinking_spent(rows)["starved"].to_list() == [1, 0]


BUDGETS = (0, 16, 64, None)
tables = st.dictionaries(
    st.sampled_from("abcdef"),
    st.fixed_dictionaries({t: st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=2) for t in BUDGETS}),
    min_size=1,
)


@given(tables, st.integers(0, 200))
def test_the_parts_add_up_to_the_thinking(scores: dict[str, dict[int | None, list[float]]], thought: int) -> None:
    rows = ladder(scores, thought)
    spent = thinking_spent(rows)
    total = spent["needed"] + spent["overthinking"] + spent["futile"]
    assert total.to_list() == pytest.approx([thought if t is None else min(t, thought) for t in BUDGETS])
    for name in ("needed", "overthinking", "futile", "starved", "solved_within"):
        known = spent.drop_nulls(f"{name}_low")
        assert (known[f"{name}_low"] <= known[name] + 1e-9).all()
        assert (known[name] <= known[f"{name}_high"] + 1e-9).all()


@given(tables)
def test_more_budget_never_needs_less(scores: dict[str, dict[int | None, list[float]]]) -> None:
    spent = thinking_spent(ladder(scores))
    for name in ("needed", "overthinking", "futile"):
        assert spent[name].is_sorted()
    assert (spent["starved"] + spent["solved_within"] <= 1 + 1e-9).all()


@given(tables)
def test_better_scores_never_solve_later(scores: dict[str, dict[int | None, list[float]]]) -> None:
    rows = ladder(scores)
    better = thinking_spent(rows.with_columns(score=(pl.col("score") + 0.25).clip(0, 1)))
    assert (better["solved_within"] >= thinking_spent(rows)["solved_within"]).all()
