"""Area and law of accuracy over log tokens, and the bootstrap that both rest on."""

from random import Random

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.statistics.curves import (
    Curve,
    area,
    area_difference,
    area_differences,
    log_law,
    overlap,
    read_curve,
)
from elastic_core.statistics.estimates import bootstrap

TOKENS = 2.0 ** np.arange(5, 11)


def curve(scores: np.ndarray, tokens: np.ndarray = TOKENS) -> Curve:
    """Scores of shape (problems, cells), over tokens that are the same for every problem or given for each."""
    problems = [f"{i:03}" for i in range(len(scores))]
    return Curve(problems, scores.astype(float), np.broadcast_to(tokens, scores.shape), np.ones(len(scores), int))


def rows(scores: np.ndarray, tokens: np.ndarray) -> pl.DataFrame:
    """One sample per problem and cell, both of shape (problems, cells)."""
    cells = [
        {
            "problem": f"{problem:03}",
            "think_budget": 2**cell,
            "solution_budget": None,
            "think_tokens": int(tokens[problem, cell]),
            "solution_tokens": 2,
            "score": float(scores[problem, cell]),
        }
        for problem, cell in np.ndindex(scores.shape)
    ]
    return pl.DataFrame(cells)


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
def test_estimates_lie_in_their_intervals_and_never_change(values: tuple[np.ndarray, np.ndarray]) -> None:
    drawn = read_curve(rows(*values))
    if not drawn.spans:
        return
    height, law = area(drawn), log_law(drawn)
    assert 0 <= height.low <= height.mean <= height.high <= 1 + 1e-12
    assert law.slope.low <= law.slope.mean <= law.slope.high
    assert law.r2 <= 1
    assert (area(drawn), log_law(drawn)) == (height, law)


@given(matrices, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(values: tuple[np.ndarray, np.ndarray], random: Random) -> None:
    table = rows(*values)
    order = list(range(table.height))
    random.shuffle(order)
    one, other = read_curve(table), read_curve(table[order])
    assert one.problems == other.problems
    assert np.array_equal(one.scores, other.scores)
    assert np.array_equal(one.tokens, other.tokens)


@pytest.mark.parametrize("level", [0.0, 0.25, 1.0])
def test_the_area_of_a_constant_curve_is_the_constant(level: float) -> None:
    estimate = area(curve(np.full((40, 6), level)))
    assert estimate.mean == pytest.approx(level)
    assert 0.03 < estimate.high - estimate.low < 0.15  # all alike is not all there is


def test_the_area_of_a_line_is_its_middle_however_the_cells_lie() -> None:
    tokens = np.array([16.0, 32.0, 64.0, 512.0, 1024.0])
    line = np.tile((np.log2(tokens) - 4) / 6, (10, 1))
    assert area(curve(line, tokens)).mean == pytest.approx(0.5)
    assert area(curve(line[:, ::-1], tokens[::-1])).mean == pytest.approx(0.5)


def test_cells_that_spend_the_same_add_no_area() -> None:
    scores = np.tile([0.0, 1.0, 0.2, 1.0], (10, 1))
    assert area(curve(scores, np.array([32, 64, 64, 128]))).mean == pytest.approx((0.5 + 0.6) / 2)


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


def test_the_law_recovers_a_known_slope() -> None:
    law = log_law(curve(np.tile(0.05 + 0.08 * np.log2(TOKENS), (200, 1))))
    assert law.slope.mean == pytest.approx(0.08)
    assert law.intercept == pytest.approx(0.05)
    assert law.r2 == pytest.approx(1)
    assert 0.07 < law.slope.low < law.slope.high < 0.09


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_flat_curve_has_no_slope_but_could_have_had_one(level: float) -> None:
    law = log_law(curve(np.full((30, 6), level)))
    assert law.slope.mean == pytest.approx(0)
    assert law.r2 == 0
    assert law.slope.low < -0.005
    assert law.slope.high > 0.005


def test_the_law_takes_three_cells_and_a_range_of_tokens() -> None:
    with pytest.raises(ValueError, match="2 cells; expected 3"):
        log_law(curve(np.ones((4, 2)), TOKENS[:2]))
    for statistic in (area, log_law):
        with pytest.raises(ValueError, match="span no range"):
            statistic(curve(np.ones((4, 3)), np.full(3, 64.0)))


def test_a_curve_is_read_over_problems_measured_in_every_cell() -> None:
    table = rows(np.ones((3, 4)), np.tile([10, 20, 40, 80], (3, 1)))
    short = table.filter((pl.col("problem") != "001") | (pl.col("think_budget") != 4))
    read = read_curve(short)
    assert (read.problems, read.num_cells, read.num_trajectories) == (["000", "002"], 4, 8)
    assert 2**read.log_tokens == pytest.approx([12, 22, 42, 82])  # thinking and solution
    apart = table.filter((pl.col("problem") == "001") == (pl.col("think_budget") == 4))
    assert not read_curve(apart).spans


def test_intervals_of_30_problems_cover_the_truth() -> None:
    rng = np.random.default_rng(0)
    whole = learners(rng, 100_000)
    height = np.sum(np.diff(whole.log_tokens) * (whole.accuracy[1:] + whole.accuracy[:-1]) / 2)
    truths = height / np.ptp(whole.log_tokens), np.polyfit(whole.log_tokens, whole.accuracy, 1)[0]
    found = [(area(drawn), log_law(drawn).slope) for drawn in (learners(rng, 30) for _ in range(100))]
    for truth, estimates in zip(truths, zip(*found, strict=True), strict=True):
        assert np.mean([estimate.low <= truth <= estimate.high for estimate in estimates]) >= 0.90


def test_the_bootstrap_of_a_mean_is_as_wide_as_its_standard_error() -> None:
    values = np.random.default_rng(0).normal(0, 1, (400, 1))
    estimate = bootstrap(values, lambda means: means[:, 0], np.array([[-1.0], [1.0]]), 400)
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_the_bootstrap_says_nothing_of_what_is_undefined() -> None:
    values, extremes = np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]])

    def inverse(means: np.ndarray) -> np.ndarray:
        return np.divide(1, means[:, 0], out=np.full(len(means), np.nan), where=means[:, 0] > 0)

    assert bootstrap(values, inverse, extremes, 2)[:3] == (2.0, -np.inf, np.inf)
    with pytest.raises(ValueError, match="undefined for these 1 problems"):
        bootstrap(values[:1], inverse, extremes, 1)


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
    assert (found["difference"], found["low"], found["high"], *counts) == expected
    spans = 2**first.log_tokens, 2**second.log_tokens
    assert found["from_tokens"] == pytest.approx(max(span.min() for span in spans))
    assert found["to_tokens"] == pytest.approx(min(span.max() for span in spans))
    assert area_differences(pl.concat(named), "model", "nobody").is_empty()
