"""What a response costs: the work of an engine, counted turn by turn, and its price."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from elastic_core.statistics.cost import TOKENS, WORK, CostModel, on_frontier, p95, with_work
from elastic_core.trajectory import SCHEMA

_COLUMNS = ("prompt_tokens", "think_tokens", "forced_tokens", "solution_tokens", "forced", "dropped", "probes")


def responses(forced: list[list[bool]], prompt: int = 10, dropped: int = 0) -> pl.DataFrame:
    """Rows of which each token is forced or sampled."""
    again = [{"at": 0, "id": 7}] * dropped
    rows = [(prompt, len(flags) - sum(flags), sum(flags), 0, flags, again, None) for flags in forced]
    return pl.DataFrame(rows, schema={name: SCHEMA[name] for name in _COLUMNS}, orient="row")


def work(rows: pl.DataFrame) -> pl.DataFrame:
    return with_work(rows.lazy()).select(WORK).collect()


def literal(prompt: int, flags: list[bool]) -> tuple[int, int, int]:
    """Input, cached input and turns of a response, token by token."""
    read, cached, turns, waiting = prompt, 0, 0, 0
    for place, forced in enumerate(flags):
        if forced:
            waiting += 1
            continue
        if waiting or place == 0:
            turns += 1
            before = prompt + place - waiting
            read, cached = read + waiting, cached + (before if turns > 1 else 0)
            waiting = 0
    return read, cached, turns


@given(st.lists(st.lists(st.booleans(), max_size=12), max_size=6), st.integers(1, 50))
def test_work_is_what_an_engine_does_turn_by_turn(forced: list[list[bool]], prompt: int) -> None:
    found = work(responses(forced, prompt))
    assert found.select("input_tokens", "cached_tokens", "turns").rows() == [literal(prompt, one) for one in forced]


def test_work_is_the_same_of_a_part_of_a_table() -> None:
    rows = responses([[False], [False, True, False], [True, False], [False, True]])
    assert work(rows[1:3]).rows() == work(rows).rows()[1:3]


def test_what_a_strategy_took_out_again_was_sampled() -> None:
    assert work(responses([[False, False]], dropped=3))["output_tokens"].to_list() == [5]


def test_forced_tokens_and_turns_can_cost_more_than_they_save() -> None:
    # A short answer that many texts were forced into, against a longer one that was not interrupted.
    guided, plain = work(responses([[False] * 4 + ([True] * 6 + [False] * 4) * 3, [False] * 24])).rows(named=True)
    sampled = CostModel(0, 0, 1)
    costs = [pl.DataFrame([row]).select(model.of()).item() for model in (sampled, TOKENS) for row in (guided, plain)]
    assert costs[0] < costs[1]
    assert costs[2] > costs[3]


def test_prices_are_of_each_kind_and_turns_take_time() -> None:
    row = pl.DataFrame({"input_tokens": [100], "cached_tokens": [50], "output_tokens": [10], "turns": [2]})
    assert row.select(CostModel(1, 0.1, 4).of()).item() == pytest.approx(145)
    assert row.select(CostModel(0.001, 0, 0.02, 0.5).of()).item() == pytest.approx(1.3)


@pytest.mark.parametrize("costs", [(-1, 0, 1), (0, 0, 0)])
def test_a_cost_is_not_negative_and_something_costs(costs: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="0"):
        CostModel(*costs)


def test_the_95th_percentile_of_single_rows_has_order_statistics_for_bounds() -> None:
    """Those that rows which lie below it have by the binomial distribution, but for the pseudo-problems."""
    rows = pl.DataFrame({"problem": range(400), "cost": np.arange(1.0, 401)})
    tail = p95(rows, "cost")
    low, high = binom.ppf((0.025, 0.975), 400, 0.95)
    assert tail.mean == 380
    assert (tail.low, tail.high) == pytest.approx((low, high + 1), abs=3)
    assert (tail.num_problems, tail.num_trajectories) == (400, 400)


@pytest.mark.parametrize(("problems", "bounded"), [(72, False), (76, True)])
def test_the_95th_percentile_is_bounded_by_rows_that_may_lie_above_it(problems: int, bounded: bool) -> None:
    """Samples that agree add nothing, and of 72 problems all may lie below it: 0.95^72 is 2.5 %."""
    rows = pl.DataFrame({"problem": np.repeat(np.arange(problems), 9), "cost": np.repeat(np.arange(problems), 9)})
    tail = p95(rows, "cost")
    assert np.isfinite(tail.high) == bounded and tail.low < tail.mean <= tail.high


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=12, unique=True))
def test_the_frontier_is_what_none_beats_in_both(cells: list[tuple[int, int]]) -> None:
    table = pl.DataFrame(cells, schema=["cost", "value"], orient="row")
    beaten = [any(c <= cost and v >= value and (c, v) != (cost, value) for c, v in cells) for cost, value in cells]
    assert table.select(on_frontier("cost", "value")).to_series().to_list() == [not each for each in beaten]
