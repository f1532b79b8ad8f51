"""avg@k, paired differences and ratios: known values, and bounds that always hold (docs/coverage.md has how often)."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from scipy.stats import binom

from elastic_core.statistics.accuracy import avg_at_k, paired_difference, paired_differences
from elastic_core.statistics.estimates import paired_ratio, problem_table
from elastic_core.statistics.intervals import Estimate, mean_interval, paired_interval, share_interval, t_quantile
from tests.unit.test_report_summary import make_rows


def table(scores: np.ndarray, column: str = "score") -> pl.DataFrame:
    """Rows of `scores`, shape (problems, samples)."""
    problems, samples = scores.shape
    names = [f"{problem:03}" for problem in range(problems) for _ in range(samples)]
    return pl.DataFrame({"problem": names, column: scores.ravel().astype(float)})


scores = st.integers(1, 12).flatmap(
    lambda problems: st.integers(1, 6).flatmap(
        lambda samples: st.lists(
            st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=samples, max_size=samples),
            min_size=problems,
            max_size=problems,
        )
    )
)


def test_shares_have_clopper_and_pearsons_interval() -> None:
    assert share_interval(0.5, 100) == pytest.approx((0.3983, 0.6017), abs=1e-4)
    assert share_interval(0.0, 10) == pytest.approx((0.0, 0.3085), abs=1e-4)
    assert share_interval(1.0, 10) == pytest.approx((0.6915, 1.0), abs=1e-4)


def test_a_problem_counts_once_however_often_it_was_sampled() -> None:
    rows = pl.DataFrame({"problem": ["a"] * 9 + ["b"], "score": [1.0] * 9 + [0.0]})
    assert avg_at_k(rows).mean == 0.5
    assert problem_table(rows, ["score"]).rows() == [("a", 9, 1.0), ("b", 1, 0.0)]


def test_samples_that_agree_within_a_problem_add_nothing() -> None:
    once = np.array([[0], [1]] * 50)
    one, eight = avg_at_k(table(once)), avg_at_k(table(np.repeat(once, 8, axis=1)))
    assert (one.low, one.high) == pytest.approx((eight.low, eight.high))
    assert (eight.num_problems, eight.num_trajectories) == (100, 800)


def test_independent_samples_narrow_the_interval_up_to_their_number() -> None:
    half = table(np.tile([0, 1], (100, 4)))
    estimate = avg_at_k(half)
    assert (estimate.low, estimate.high) == pytest.approx(share_interval(0.5, 800))


@pytest.mark.parametrize("score", [0, 1])
def test_all_wrong_and_all_right_leave_room_as_for_one_sample_per_problem(score: int) -> None:
    estimate = avg_at_k(table(np.full((100, 8), score)))
    assert estimate.mean == score
    assert estimate.high - estimate.low == pytest.approx(share_interval(0, 100)[1], rel=0.05)


@given(scores)
def test_the_interval_holds_the_mean_within_0_and_1(values: list[list[float]]) -> None:
    estimate = avg_at_k(table(np.array(values)))
    assert 0 <= estimate.low <= estimate.mean <= estimate.high <= 1
    assert estimate.low < estimate.high


@given(scores)
def test_right_and_wrong_are_symmetric(values: list[list[float]]) -> None:
    right, wrong = avg_at_k(table(np.array(values))), avg_at_k(table(1 - np.array(values)))
    assert (right.low, right.high) == pytest.approx((1 - wrong.high, 1 - wrong.low))


@pytest.mark.parametrize("bad", [[1.5, 0.0], [-0.1, 0.0], [None, 1.0]])
def test_scores_outside_0_and_1_or_missing_are_refused(bad: list[float | None]) -> None:
    with pytest.raises(ValueError, match="score"):
        avg_at_k(pl.DataFrame({"problem": ["a", "b"], "score": bad}))
    with pytest.raises(ValueError):
        avg_at_k(table(np.ones((1, 1))).clear())


def test_a_difference_is_taken_over_common_problems_only() -> None:
    a, b = table(np.array([[1, 1], [0, 0]])), table(np.array([[0, 0], [0, 0], [1, 1]]))
    difference = paired_difference(a, b)
    assert (difference.mean, difference.num_problems, difference.num_trajectories) == (0.5, 2, 8)
    with pytest.raises(ValueError, match="no problem in common"):
        paired_difference(a, b.filter(problem="002"))


def test_a_difference_of_shared_difficulty_is_known_better_than_its_terms() -> None:
    rng = np.random.default_rng(0)
    skill = rng.beta(0.5, 0.5, (100, 1))
    a, b = table(rng.binomial(1, skill, (100, 8))), table(rng.binomial(1, skill, (100, 8)))
    paired, alone = paired_difference(a, b), avg_at_k(a)
    assert paired.high - paired.low < 0.7 * (alone.high - alone.low)


def test_a_difference_of_all_right_and_all_wrong_is_not_certain() -> None:
    difference = paired_difference(table(np.ones((30, 4))), table(np.zeros((30, 4))))
    assert difference.mean == difference.high == 1
    assert 0.7 < difference.low < 0.95


@given(scores)
def test_a_difference_changes_sign_when_its_terms_are_swapped(values: list[list[float]]) -> None:
    a, b = table(np.array(values)), table(np.array(values[::-1]))
    forth, back = paired_difference(a, b), paired_difference(b, a)
    assert (forth.mean, forth.low, forth.high) == pytest.approx((-back.mean, -back.high, -back.low))
    assert -1 - 1e-9 <= forth.low <= forth.mean <= forth.high <= 1 + 1e-9


def test_equal_problems_leave_little_doubt_and_some() -> None:
    """Each bound is the exact one of a share that was never seen, at 2.5 %, however many samples there are of each: 3.6
    problems in a hundred may differ. The pseudo-problems leave n (n + 1) / (n + 2) of n problems."""
    for count in (2, 10, 30, 100, 500):
        worth = count * (count + 1) / (count + 2)
        for chance in (0.025, 0.05, 0.005):
            bound = 1 - chance ** (1 / worth)
            assert paired_interval(np.zeros(count), chance) == pytest.approx((-bound, bound))
    assert paired_interval(np.zeros(30))[1] == pytest.approx(0.120, abs=0.001)


@pytest.mark.parametrize("num_problems", [5, 10, 30, 61, 131, 261, 600])
@pytest.mark.parametrize("chance", [0.025, 0.05])
def test_each_bound_of_whole_problems_lost_is_exact(num_problems: int, chance: float) -> None:
    """Enumerated over how many of n problems a budget breaks, all others being equal: the bound towards the losses
    misses as seldom as it says whatever share it breaks, as Clopper and Pearson's does."""
    counts = np.arange(num_problems + 1)
    lows = np.array([paired_interval(np.where(counts[:-1] < broken, -1.0, 0.0), chance)[0] for broken in counts])
    for share in np.concatenate([np.geomspace(1e-4, 0.5, 200), -lows[lows > -1] - 1e-9]):
        assert binom.pmf(counts, num_problems, share)[lows > -share].sum() <= chance + 1e-9


@pytest.mark.parametrize("num_problems", [10, 30, 100, 500])
@pytest.mark.parametrize("size", [0.25, 0.5, 1.0])
def test_losses_of_a_few_problems_are_covered(num_problems: int, size: float) -> None:
    """A budget that breaks some problems outright and leaves the others as they are: exact over how many it breaks."""
    counts = np.arange(num_problems + 1)
    bounds = [paired_interval(np.where(np.arange(num_problems) < broken, -size, 0.0)) for broken in counts]
    low, high = np.array(bounds).T
    for broken in np.concatenate([np.linspace(0.2, 20, 100), num_problems * np.linspace(0.02, 0.5, 25)]):
        share = broken / num_problems
        if share <= 0.5:
            chance = binom.pmf(counts, num_problems, share)
            truth = -size * share
            assert chance[(low <= truth) & (truth <= high)].sum() >= 0.94, broken
            assert chance[low > truth].sum() <= 0.05, broken


def test_a_ratio_of_proportional_lengths_is_exact() -> None:
    lengths = np.array([[10, 20], [30, 50]])
    ratio = paired_ratio(table(lengths, "tokens"), table(2 * lengths, "tokens"), "tokens")
    assert (ratio.mean, ratio.low, ratio.high) == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 12.7062), (2, 4.3027), (10, 2.2281), (29, 2.0452), (99, 1.9842)])
def test_t_quantiles_against_the_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=5e-5)


def test_one_value_bounds_nothing() -> None:
    assert mean_interval(np.array([3.0])) == (-np.inf, np.inf)
    assert paired_interval(np.array([0.5])) == (-1.0, 1.0)


# Pairs of a whole table.


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return make_rows(num_problems=6, num_samples=2, budgets=[16, 64, None])


def test_models_are_compared_at_every_benchmark_strategy_and_budget(rows: pl.DataFrame) -> None:
    found = paired_differences(rows, "model", "base")
    assert found.height == 2 * (3 * 3 + 1)
    assert set(found.select("first", "second").rows()) == {("base", "trained")}
    row = found.row(by_predicate=(pl.col("benchmark") == "hard") & (pl.col("strategy") == "separate")
                    & (pl.col("think_budget") == 64), named=True)  # fmt: skip
    cell = rows.filter(benchmark="hard", strategy="separate", think_budget=64)
    alone = paired_difference(cell.filter(model="trained"), cell.filter(model="base"))
    assert [row["difference"], *(row[name] for name in Estimate._fields[1:5])] == pytest.approx(alone.row)


def test_strategies_are_compared_pair_by_pair_and_the_baseline_is_first(rows: pl.DataFrame) -> None:
    found = paired_differences(rows, "strategy", "vanilla")
    at_16 = found.filter(benchmark="easy", model="base", think_budget=16).select("first", "second").rows()
    assert at_16 == [("budget_forcing", "separate"), ("vanilla", "budget_forcing"), ("vanilla", "separate")]


def test_only_common_problems_count_and_pairs_without_any_are_left_out(rows: pl.DataFrame) -> None:
    base = rows.filter(model="base", strategy="separate", think_budget=16, benchmark="easy")
    trained = rows.filter(model="trained", strategy="separate", think_budget=16, benchmark="easy")
    some = pl.concat([base, trained.filter(pl.col("problem") >= "004")])
    assert paired_differences(some, "model", "base")["num_problems"].to_list() == [2]
    none = pl.concat([base.filter(pl.col("problem") < "004"), trained.filter(pl.col("problem") >= "004")])
    assert paired_differences(none, "model", "base").is_empty()


def test_the_order_of_rows_changes_nothing(rows: pl.DataFrame) -> None:
    shuffled = rows.sample(fraction=1, shuffle=True, seed=0)
    one, other = (paired_differences(table, "strategy", "vanilla") for table in (rows, shuffled))
    assert_frame_equal(one, other)
