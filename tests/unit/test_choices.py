"""Picks under a limit: what they are, and that they do not hide that they were picked."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.statistics.certificates import MARGINS
from elastic_core.statistics.cost import TOKENS, best_under, round_limits
from elastic_core.statistics.which_budget import NonInferiority, budget_advice, cheapest_within, judged
from reports.summary import cell_problems
from reports.tables.budgets import side_by_side, within_points
from tests.tables import advisable
from tests.unit.test_report_summary import make_rows


@pytest.fixture(scope="module")
def problems() -> pl.DataFrame:
    return advisable(make_rows(benchmarks=["hard"], num_problems=40))


def test_the_cheapest_within_a_margin_is_certified_to_be_and_none_that_is_cheaper(problems: pl.DataFrame) -> None:
    advice = budget_advice(problems)
    for row in cheapest_within(advice, problems).filter(verdict=NonInferiority.CERTIFIED).iter_rows(named=True):
        of_model = advice.filter(model=row["model"])
        assert row["within"] <= row["margin"]
        alike = judged(of_model.filter(strategy="separate"), row["margin"]).filter(verdict=row["verdict"])
        assert alike["cost"].min() == row["cost"]


def test_where_none_is_shown_the_nearest_miss_stands_for_it(problems: pl.DataFrame) -> None:
    advice = budget_advice(problems)
    picks = cheapest_within(advice, problems, margins=[1e-6])
    assert picks["verdict"].unique().to_list() == ["undecided"]
    nearest = advice.filter(strategy="separate").group_by("model").agg(pl.col("within").min()).sort("model")
    assert picks.sort("model")["within"].to_list() == nearest["within"].to_list()


def test_a_wider_margin_is_never_dearer(problems: pl.DataFrame) -> None:
    picks = cheapest_within(budget_advice(problems), problems).filter(verdict=NonInferiority.CERTIFIED)
    for of_model in picks.partition_by("model", "verdict"):
        assert of_model["margin"].is_in(MARGINS).all()
        assert of_model.sort("margin")["cost"].is_sorted(descending=True)


def test_margins_with_the_same_pick_are_one_line(problems: pl.DataFrame) -> None:
    within = cheapest_within(budget_advice(problems).with_columns(within=pl.lit(0.03)), problems)
    assert within.filter(model="base")["verdict"].to_list() == ["undecided", "undecided", "certified", "certified"]
    whole = within_points(within, "tokens")
    assert whole is not None
    assert whole.frame.filter(model="base")["points given up, at most"].to_list() == ["1 or 2", "5 or 10"]
    under = best_under(problems, {"base": TOKENS, "trained": TOKENS})
    _, short = side_by_side(under, within, "tokens", "hard", "base")
    assert short.frame["at most"].to_list() == ["1 or 2", "5 or 10"]
    assert [run.startswith("None. Nearest: ") for run in short.frame["run"]] == [True, False]


def test_without_responses_without_a_limit_nothing_is_picked() -> None:
    limited = advisable(make_rows(benchmarks=["hard"], strategies=["separate"], num_problems=5))
    assert cheapest_within(budget_advice(limited), limited).is_empty()


def test_under_a_limit_none_is_more_accurate_and_a_higher_limit_is_another_cell(problems: pl.DataFrame) -> None:
    best = best_under(problems, {"base": TOKENS, "trained": TOKENS})
    cells = problems.with_columns(cost=TOKENS.of()).group_by("model", "strategy", "think_budget")
    means = cells.agg(pl.col("cost", "score").mean())
    for row in best.iter_rows(named=True):
        under = means.filter(pl.col("cost") <= row["limit"], model=row["model"])
        assert row["cost"] <= row["limit"]
        assert under["score"].max() == pytest.approx(row["accuracy"])
        assert row["num_others"] == under.height - 1 >= row["num_close"]
    for of_model in best.partition_by("model"):
        assert of_model["accuracy"].is_sorted()
        assert of_model.n_unique(["strategy", "think_budget"]) == of_model.height


def test_equal_cells_are_all_as_good_maybe_and_one_that_is_far_better_stands_alone() -> None:
    rows = make_rows(models=["base"], benchmarks=["hard"], strategies=["separate"], budgets=[16, 32], num_problems=40)
    models = {"base": TOKENS}
    equal = best_under(cell_problems(rows.with_columns(score=pl.lit(0.5))), models)
    assert equal.row(-1, named=True)["num_close"] == equal.row(-1, named=True)["num_others"]
    better = rows.with_columns(score=(pl.col("think_budget") == 32).cast(pl.Float64))
    assert best_under(cell_problems(better), models).row(-1, named=True)["num_close"] == 0


@given(st.lists(st.floats(0.001, 1e7), min_size=1, max_size=20))
def test_limits_are_round_and_reach_from_the_cheapest_to_the_dearest(costs: list[float]) -> None:
    limits = round_limits(costs)
    assert limits == sorted(limits)
    assert limits[-1] >= max(costs) and limits[0] >= min(costs)
    assert {float(f"{limit:.1e}"[:3]) for limit in limits} <= {1, 1.5, 2, 3, 5, 7}
