"""What the next tokens buy and where they hurt, accuracy at any budget, and the cheapest that gives up hardly any."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.statistics.budgets import (
    Distribution,
    anytime_accuracy,
    anytime_differences,
    comparable,
    falls,
    marginal_accuracy,
    trapezoid_weights,
)
from elastic_core.statistics.estimates import by_seed
from elastic_core.statistics.which_budget import Reason, advised_budgets, budget_advice, choose_budgets
from tests.tables import frame


def problems(cells: dict[int | None, tuple[float, float]], count: int = 40) -> pl.DataFrame:
    """A problem table by cells: budget → share of right problems, tokens per trajectory. None is unconstrained."""
    rows = frame(
        {
            "model": "base", "benchmark": "hard", "strategy": "unconstrained" if t is None else "separate",
            "think_budget": t, "solution_budget": None if t is None else 32, "problem": f"{i:03}", "num_samples": 4,
            "score": float(i < share * count), "looks": [float(i < share * count)] * 3, "cut": 0.0,
            "tokens": float(tokens + i % 3), "input_tokens": 0, "cached_tokens": 0, "output_tokens": tokens + i % 3,
        }
        for t, (share, tokens) in cells.items()
        for i in range(count)
    )  # fmt: skip
    return rows.with_columns(cap=pl.lit(None, pl.Int64), turns=pl.lit(1))


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


def shown(table: pl.DataFrame) -> pl.DataFrame:
    advice = budget_advice(table)
    return advised_budgets(advice, choose_budgets(advice, table))


def test_the_advice_is_the_cheapest_that_holds_and_says_what_it_saves() -> None:
    table = problems({16: (0.5, 100), 64: (0.9, 150), 128: (0.9, 200), None: (0.9, 400)}, count=300)
    advice = budget_advice(table)
    assert advice["think_budget"].to_list() == [16, 64, 128]
    assert advice["verdict"].to_list() == ["fails", "certified", "certified"]
    assert advice["difference"].to_list() == pytest.approx([-0.4, 0, 0])
    (chosen,) = shown(table).to_dicts()
    assert chosen["think_budget"] == 64
    assert chosen["saved"] == pytest.approx(1 - 151 / 401, abs=0.01)
    assert chosen["saved_low"] <= chosen["saved"] <= chosen["saved_high"]


def test_equal_scores_on_few_problems_decide_nothing_and_say_how_many_would() -> None:
    (chosen,) = shown(problems({64: (0.5, 100), None: (0.5, 200)}, count=100)).to_dicts()
    assert chosen["verdict"] == "undecided"
    assert 170 < chosen["problems_needed"] < 230


def test_a_dearer_budget_that_holds_stands_beside_a_cheaper_one_that_is_undecided() -> None:
    table = problems({64: (0.9, 100), 128: (0.9, 200), None: (0.9, 400)}, count=300)
    # The cheaper one is right about other problems, as often.
    fewer = pl.col("think_budget") == 64
    turned = (pl.when(fewer).then(pl.col(name).reverse().over(fewer)).otherwise(name) for name in ("score", "looks"))
    found = shown(table.with_columns(turned))
    assert found.select("think_budget", "verdict").rows() == [(64, "undecided"), (128, "certified")]


def test_a_budget_that_costs_more_than_no_budget_saves_less_than_nothing() -> None:
    assert budget_advice(problems({64: (0.5, 300), None: (0.5, 200)}))["saved"].item() < 0


def test_without_unconstrained_responses_there_is_no_advice() -> None:
    assert budget_advice(problems({16: (0.5, 100)})).is_empty()


def test_cells_that_are_not_complete_yet_are_not_advised() -> None:
    table = problems({16: (0.5, 100), 64: (0.5, 150), None: (0.5, 400)})
    begun = table.filter((pl.col("think_budget").ne_missing(16)) | (pl.col("problem") < "003"))
    assert budget_advice(begun)["think_budget"].to_list() == [64]


def test_more_tokens_hurt_where_a_larger_budget_is_less_accurate_and_nowhere_else() -> None:
    hurts = falls(problems({0: (0.9, 10), 16: (0.85, 20), 48: (0.5, 60), 96: (0.95, 100)}, count=100))
    assert hurts.select("think_budget", "next_budget", "num_problems").rows() == [(0, 48, 100)]
    assert hurts["difference"].item() == pytest.approx(-0.4)
    assert -0.55 < hurts["low"].item() < -0.4 < hurts["high"].item() < -0.25
    assert falls(problems({0: (0.5, 10), 48: (0.5, 60), 96: (0.9, 100)})).is_empty()
    assert falls(problems({0: (0.5, 10), None: (0.1, 60)})).is_empty()


def test_anytime_accuracy_is_the_area_over_the_logarithm_of_the_budget() -> None:
    rungs = {0: (0.0, 10), 16: (0.25, 20), 32: (0.5, 40), 128: (1.0, 100), None: (0.1, 200)}
    (found,) = anytime_accuracy(problems(rungs)).to_dicts()
    # One doubling from 16 to 32, two from 32 to 128; no token and no limit have no place on the scale.
    assert found["anytime"] == pytest.approx((1 * 0.375 + 2 * 0.75) / 3)
    assert (found["smallest"], found["largest"], found["num_rungs"]) == (16, 128, 3)
    assert found["anytime_low"] < found["anytime"] < found["anytime_high"]
    (even,) = anytime_accuracy(problems(rungs), "uniform").to_dicts()
    assert even["anytime"] == pytest.approx((16 * 0.375 + 96 * 0.75) / 112)
    assert anytime_accuracy(problems({16: (0.5, 20), None: (0.5, 30)})).is_empty()


def test_two_models_are_compared_at_any_budget_that_both_were_measured_at() -> None:
    base = problems({16: (0.25, 20), 32: (0.5, 40), 128: (1.0, 100)})
    other = problems({0: (1.0, 5), 16: (0.75, 20), 32: (0.75, 40), 64: (0.0, 60), 128: (1.0, 100), None: (0.0, 300)})
    both = pl.concat([base, other.with_columns(model=pl.lit("other"))])
    (found,) = anytime_differences(both, [("base", "other"), ("base", "absent")]).to_dicts()
    assert (found["first"], found["second"]) == ("base", "other")
    assert (found["smallest"], found["largest"], found["num_rungs"]) == (16, 128, 3)
    # Half a point of one between 16 and 32, a doubling; then two doublings from a quarter to nothing.
    assert found["difference"] == pytest.approx((1 * (0.5 + 0.25) / 2 + 2 * (0.25 + 0) / 2) / 3)
    assert found["low"] < found["difference"] < found["high"]
    assert (found["num_problems"], found["num_trajectories"]) == (40, 2 * 3 * 40 * 4)
    (back,) = anytime_differences(both, [("other", "base")]).to_dicts()
    assert back["difference"] == pytest.approx(-found["difference"])


def test_seeds_of_a_training_widen_its_difference_at_any_budget() -> None:
    """Each seed weighs the same, and what they disagree on is in the interval."""
    column = by_seed("score")
    base = problems({16: (0.5, 20), 64: (0.5, 60)}).with_columns(pl.concat_list("score").alias(column))
    same = base.with_columns(model=pl.lit("trained"))
    scores = [[float(i < 20 + 4 * seed) for seed in (-1, 0, 1)] for i in range(40)] * 2
    several = same.with_columns(pl.Series(column, scores))
    found, alone = (
        anytime_differences(pl.concat([base, trained]), [("base", "trained")]).row(0, named=True)
        for trained in (several, same)
    )
    assert found["difference"] == pytest.approx(0) == alone["difference"]
    assert found["high"] - found["low"] > 0.1 + alone["high"] - alone["low"]


@given(
    st.lists(st.integers(1, 10**6), min_size=2, max_size=12, unique=True), st.sampled_from(["log-uniform", "uniform"])
)
def test_weights_of_budgets_sum_to_one(budgets: list[int], distribution: Distribution) -> None:
    weights = trapezoid_weights(sorted(budgets), distribution)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()


shares = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


@given(st.lists(st.tuples(shares, st.integers(1, 500)), min_size=1, max_size=4), shares)
def test_verdicts_are_those_of_a_sequence_from_the_largest_budget_down(
    cells: list[tuple[float, int]], free: float
) -> None:
    table = problems({16 * (i + 1): cell for i, cell in enumerate(cells)} | {None: (free, 600)}, count=8)
    advice = budget_advice(table)
    assert advice.height == len(cells)
    assert advice["cost"].is_sorted()
    assert advice.sort("think_budget")["within"].is_sorted(descending=True)
    for row in advice.iter_rows(named=True):
        failed = "fails" if row["high"] < -row["margin"] else "undecided"
        assert row["verdict"] == ("certified" if row["within"] <= row["margin"] else failed)
        assert row["within"] >= -row["difference"]
    assert (advice["low"] <= advice["difference"]).all()


def advised(cells: dict[int | None, tuple[float, float]], count: int = 400, guess: float = 0.0) -> object:
    """Of one model: its budget, or the reason why there is none."""
    table = problems(cells, count)
    found = choose_budgets(budget_advice(table), table, {"hard": guess})["base", "hard"]
    return found if isinstance(found, Reason) else found["think_budget"]


def test_the_advice_saves_something_and_is_beaten_by_nothing() -> None:
    assert advised({64: (0.9, 150), 128: (0.9, 200), None: (0.9, 400)}) == 64
    assert advised({64: (0.5, 150), None: (0.9, 400)}) is Reason.NOT_CERTIFIED
    assert advised({64: (0.9, 400), None: (0.9, 400)}) is Reason.NO_SAVING
    assert advised({64: (0.0, 150), None: (0.0, 400)}) is Reason.GUESSING
    assert advised({64: (0.25, 150), None: (0.25, 400)}, guess=0.25) is Reason.GUESSING
    # Without a limit the model is worse than under 48: the cheaper 32 is as good as no limit, and no advice.
    assert advised({32: (0.5, 50), 48: (0.8, 80), None: (0.5, 400)}) == 48
    assert advised({64: (0.9, 150)}) is Reason.UNMEASURED


def test_a_model_that_another_one_beats_is_not_advised() -> None:
    worse = problems({64: (0.6, 150), None: (0.6, 400)}, 300).with_columns(model=pl.lit("trained"))
    table = pl.concat([problems({64: (0.9, 150), None: (0.9, 400)}, 300), worse])
    assert choose_budgets(budget_advice(table), table)["trained", "hard"] is Reason.BEATEN
    found = choose_budgets(budget_advice(table), table)["base", "hard"]
    assert not isinstance(found, Reason) and found["think_budget"] == 64


def test_cells_are_compared_on_the_problems_that_all_of_them_have() -> None:
    """Of 100 problems one side lacks the first, another the second."""
    table = problems({16: (0.5, 100), 64: (0.5, 150), None: (0.5, 400)}, count=100)
    lacking = pl.when(pl.col("think_budget") == 16).then(pl.lit("000")).when(pl.col("think_budget") == 64)
    rest = table.filter(pl.col("problem") != lacking.then(pl.lit("001")).otherwise(pl.lit("002")))
    sides = comparable(rest, "think_budget")
    assert [side.height for side in sides] == [97, 97, 97]
    assert all(side["problem"].equals(sides[0]["problem"]) for side in sides)
    limited = table.filter(pl.col("think_budget").is_not_null())
    assert comparable(limited.with_columns(problem=pl.format("{} {}", "problem", "think_budget")), "think_budget") == []
