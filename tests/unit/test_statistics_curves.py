"""Area of accuracy over log tokens, the law over log budgets, and the bootstrap that both rest on."""

from collections.abc import Sequence
from random import Random

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.statistics.curves import (
    Curve,
    LogLaw,
    area_difference,
    area_differences,
    log_law,
    overlap,
    read_curve,
)
from elastic_core.statistics.estimates import bootstrap
from tests.tables import frame

TOKENS = 2.0 ** np.arange(5, 11)


def curve(scores: np.ndarray, tokens: np.ndarray = TOKENS) -> Curve:
    """Scores of shape (problems, cells), over tokens that are the same for every problem or given for each."""
    problems = [f"{i:03}" for i in range(len(scores))]
    values = scores.astype(float), np.broadcast_to(tokens, scores.shape)
    return Curve(problems, *values, np.ones(len(scores), int), np.arange(len(scores)))


def rows(scores: np.ndarray, tokens: np.ndarray, budgets: Sequence[int] = (1, 2, 4, 8, 16, 32)) -> pl.DataFrame:
    """One sample per problem and cell, both of shape (problems, cells)."""
    return frame(
        {
            "problem": f"{problem:03}", "think_budget": budgets[cell], "solution_budget": None, "solution_tokens": 2,
            "think_tokens": int(tokens[problem, cell]), "score": float(scores[problem, cell]),
        }
        for problem, cell in np.ndindex(scores.shape)
    )  # fmt: skip


def learners(rng: np.random.Generator, problems: int, gain: float = 0.0) -> Curve:
    """Problems that are right beyond a number of tokens of their own, and stop a little after it."""
    needed = rng.normal(8, 1.5, (problems, 1)) - gain
    scores = rng.binomial(8, 1 / (1 + np.exp(-2 * (np.log2(TOKENS) - needed)))) / 8
    return curve(scores, np.minimum(TOKENS, rng.lognormal(5.5, 0.5, (problems, 1))) + 20)


matrices = st.tuples(st.integers(1, 8), st.integers(3, 6), st.integers(0, 2**32 - 1)).map(
    lambda shape: (
        np.random.default_rng(shape[2]).choice([0.0, 0.5, 1.0], shape[:2]),
        np.random.default_rng(shape[2]).integers(1, 500, shape[:2]),
    )
)


@given(matrices)
def test_a_law_has_its_slope_in_its_interval_and_a_p_value(values: tuple[np.ndarray, np.ndarray]) -> None:
    scores, _ = values
    law = fitted(scores)
    assert law is not None
    assert law.slope.low <= law.slope.mean + 1e-12 and law.slope.mean <= law.slope.high + 1e-12
    assert law.r2 <= 1
    assert (law.lack_of_fit is None) == (len(scores) <= scores.shape[1] - 2)
    assert law.lack_of_fit is None or 0 <= law.lack_of_fit <= 1


@given(matrices, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(values: tuple[np.ndarray, np.ndarray], random: Random) -> None:
    table = rows(*values)
    order = list(range(table.height))
    random.shuffle(order)
    one, other = read_curve(table), read_curve(table[order])
    assert one.problems == other.problems
    assert np.array_equal(one.scores, other.scores)
    assert np.array_equal(one.tokens, other.tokens)


@given(matrices, st.integers(0, 2**32 - 1))
def test_a_difference_lies_in_its_interval_and_never_changes(values: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    one = read_curve(rows(*values))
    other = one._replace(scores=np.random.default_rng(seed).permuted(one.scores, axis=1))
    if not overlap(one, other):
        return
    difference = area_difference(one, other)
    assert -1 <= difference.low <= difference.mean <= difference.high <= 1
    assert area_difference(one, other) == difference


@pytest.mark.parametrize("level", [0.0, 0.25, 1.0])
def test_constant_curves_are_apart_by_their_levels(level: float) -> None:
    estimate = area_difference(curve(np.full((40, 6), level)), curve(np.zeros((40, 6))))
    assert estimate.mean == pytest.approx(level)
    assert 0.03 < estimate.high - estimate.low < 0.15  # all alike is not all there is


def test_a_line_is_as_high_as_its_middle_however_the_cells_lie() -> None:
    tokens = np.array([16.0, 32.0, 64.0, 512.0, 1024.0])
    line = np.tile((np.log2(tokens) - 4) / 6, (10, 1))
    nothing = curve(np.zeros((10, 5)), tokens)
    assert area_difference(curve(line, tokens), nothing).mean == pytest.approx(0.5)
    assert area_difference(curve(line[:, ::-1], tokens[::-1]), nothing).mean == pytest.approx(0.5)


def test_cells_that_spend_the_same_add_no_height() -> None:
    scores, tokens = np.tile([0.0, 1.0, 0.2, 1.0], (10, 1)), np.array([32, 64, 64, 128])
    found = area_difference(curve(scores, tokens), curve(np.zeros((10, 4)), tokens))
    assert found.mean == pytest.approx((0.5 + 0.6) / 2)


def test_curves_are_compared_where_both_have_tokens() -> None:
    line = (np.log2(TOKENS) - 5) / 5
    low, high = curve(np.tile(line[:4], (10, 1)), TOKENS[:4]), curve(np.tile(line[2:] + 0.1, (10, 1)), TOKENS[2:])
    assert area_difference(high, low).mean == pytest.approx(0.1)
    assert area_difference(low, high).mean == pytest.approx(-0.1)
    between = curve(np.full((10, 2), 0.7), np.array([100.0, 200.0]))  # no cell of the line lies at its ends
    middle = (np.log2(100) + np.log2(200)) / 2
    assert area_difference(between, low).mean == pytest.approx(0.7 - (middle - 5) / 5)


def test_a_curve_does_not_differ_from_itself_and_the_difference_changes_sign() -> None:
    rng = np.random.default_rng(0)
    a, b = learners(rng, 50), learners(rng, 50, gain=1.0)
    assert area_difference(a, a).mean == 0
    forth, back = area_difference(b, a), area_difference(a, b)
    assert forth.mean == -back.mean
    assert forth.low > 0 or forth.high < 0
    assert (forth.low, forth.high) == pytest.approx((-back.high, -back.low), abs=0.01)


def test_curves_are_compared_on_common_problems_only() -> None:
    a = curve(np.ones((4, 6)))
    b = curve(np.zeros((6, 6)))._replace(problems=["002", "003", "004", "005", "006", "007"])
    difference = area_difference(a, b)
    assert (difference.mean, difference.num_problems, difference.num_trajectories) == (1.0, 2, 4)


def test_curves_that_do_not_meet_are_refused() -> None:
    a = curve(np.ones((4, 3)), TOKENS[:3])
    for other in (curve(np.ones((4, 3)), TOKENS[3:]), a._replace(problems=["100", "101", "102", "103"])):
        assert not overlap(a, other)
        with pytest.raises(ValueError, match="no range of tokens"):
            area_difference(a, other)


def fitted(scores: np.ndarray, budgets: Sequence[int] = (16, 32, 64, 128, 256, 512)) -> LogLaw | None:
    """The law of shares of right samples, shape (problems, budgets)."""
    return log_law(rows(scores, np.ones(scores.shape), budgets))


def test_the_law_recovers_a_known_slope() -> None:
    law = fitted(np.tile(0.05 + 0.08 * np.arange(4, 10), (200, 1)))
    assert law is not None
    assert law.budgets == [16, 32, 64, 128, 256, 512]
    assert law.slope.mean == pytest.approx(0.08)
    assert (law.r2, law.lack_of_fit) == (pytest.approx(1), 1)
    assert 0.07 < law.slope.low < law.slope.high < 0.09


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_flat_curve_has_no_slope_but_could_have_had_one(level: float) -> None:
    law = fitted(np.full((30, 6), level))
    assert law is not None
    assert law.slope.mean == pytest.approx(0)
    assert (law.r2, law.lack_of_fit) == (0, 1)
    assert law.slope.low < -0.005
    assert law.slope.high > 0.005


def test_the_law_takes_three_budgets_of_16_or_more_and_problems_measured_in_all() -> None:
    assert fitted(np.ones((4, 2))) is None
    table = rows(np.ones((4, 6)), np.ones((4, 6)))  # 1 to 32 tokens
    assert log_law(table) is None
    measured = rows(np.ones((4, 3)), np.ones((4, 3)), (16, 32, 64))
    apart = measured.filter((pl.col("problem") == "001") == (pl.col("think_budget") == 16))
    assert log_law(apart) is None


def solved(accuracies: list[float], num_problems: int, num_samples: int, seed: int = 0) -> np.ndarray:
    """Shares of right samples, shape (problems, budgets), of problems from easy to hard, with these accuracies."""
    places = (np.arange(num_problems) + 0.5) / num_problems
    shares = np.stack([places ** (1 / accuracy - 1) for accuracy in accuracies], axis=1)
    return np.random.default_rng(seed).binomial(num_samples, shares) / num_samples


@pytest.mark.parametrize(
    "accuracies",
    [
        [0.011, 0.038, 0.165, 0.278, 0.594, 0.536, 0.639],
        [0.060, 0.176, 0.519, 0.556, 0.884, 0.861, 0.925],
    ],
)
def test_a_curve_that_only_looks_like_a_line_is_refuted(accuracies: list[float]) -> None:
    """The miniature's hard level: R² is 0.89 and 0.94, and its steps and its fall are not a line."""
    law = fitted(solved(accuracies, 100, 8, seed=1), budgets=[16, 32, 48, 64, 96, 128, 192])
    assert law is not None and law.lack_of_fit is not None
    assert law.r2 > 0.85
    assert law.lack_of_fit < 1e-20


def test_a_line_is_seldom_refuted_and_few_problems_refute_nothing() -> None:
    line = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    laws = [fitted(solved(line, 30, 8, seed)) for seed in range(200)]
    refuted = [law.lack_of_fit < 0.05 for law in laws if law is not None and law.lack_of_fit is not None]
    assert len(refuted) == 200
    assert np.mean(refuted) <= 0.09
    few = fitted(solved([0.1, 0.1, 0.1, 0.9, 0.9, 0.9], 4, 8))
    assert few is not None and few.lack_of_fit is None, "4 problems, 4 contrasts"


def test_a_curve_is_read_over_problems_measured_in_every_cell() -> None:
    table = rows(np.ones((3, 4)), np.tile([10, 20, 40, 80], (3, 1)))
    short = table.filter((pl.col("problem") != "001") | (pl.col("think_budget") != 4))
    read = read_curve(short)
    assert (read.problems, read.num_cells, read.num_trajectories) == (["000", "002"], 4, 8)
    assert 2**read.log_tokens == pytest.approx([12, 22, 42, 82])  # thinking and solution
    apart = table.filter((pl.col("problem") == "001") == (pl.col("think_budget") == 4))
    assert not read_curve(apart).spans


def test_the_bootstrap_of_a_mean_is_as_wide_as_its_standard_error() -> None:
    values = np.random.default_rng(0).normal(0, 1, (400, 1))
    estimate = bootstrap(values, lambda means: means[:, 0], np.array([[-1.0], [1.0]]), 400, 400)
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_the_bootstrap_says_nothing_of_what_is_undefined() -> None:
    values, extremes = np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]])

    def inverse(means: np.ndarray) -> np.ndarray:
        return np.divide(1, means[:, 0], out=np.full(len(means), np.nan), where=means[:, 0] > 0)

    assert bootstrap(values, inverse, extremes, 2, 2)[:3] == (2.0, -np.inf, np.inf)
    with pytest.raises(ValueError, match="undefined for these 1 problems"):
        bootstrap(values[:1], inverse, extremes, 1, 1)


def test_a_table_holds_every_curve_against_the_baseline_at_equal_tokens() -> None:
    rng = np.random.default_rng(0)
    scores, tokens = rng.choice([0.0, 0.5, 1.0], (8, 6)), TOKENS + rng.integers(0, 9, (8, 6))
    base, other = rows(scores, tokens), rows(1 - scores, 2 * tokens)
    named = [
        part.with_columns(model=pl.lit(model), benchmark=pl.lit("easy"), strategy=pl.lit("separate"))
        for model, part in (("base", base), ("other", other), ("one cell", base.filter(think_budget=1)))
    ]
    (found,) = area_differences(pl.concat(named), "model", "base").to_dicts()
    first, second = read_curve(base), read_curve(other)
    expected = area_difference(second, first)
    assert [found[name] for name in ("first", "second", "strategy")] == ["base", "other", "separate"]
    counts = found["num_problems"], found["num_trajectories"]
    assert (found["difference"], found["low"], found["high"], *counts) == expected.row
    spans = 2**first.log_tokens, 2**second.log_tokens
    assert found["from_tokens"] == pytest.approx(max(span.min() for span in spans))
    assert found["to_tokens"] == pytest.approx(min(span.max() for span in spans))
    assert area_differences(pl.concat(named), "model", "nobody").is_empty()
