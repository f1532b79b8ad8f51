"""What training seeds add to an interval: known values and laws; what intervals are made of."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from elastic_core.statistics.accuracy import (
    avg_at_k,
    mean_score,
    mean_squares,
    paired_difference,
    variance_split,
)
from elastic_core.statistics.estimates import TRAIN_SEED, by_seed, pooled, problem_table, seed_columns, seeds_as_one
from elastic_core.statistics.intervals import seed_half_widths, with_seeds
from reports.tables.comparisons import variance
from tests.unit.test_report_summary import make_rows

SAMPLES = 8


def problems(scores: np.ndarray) -> pl.DataFrame:
    """A problem table of scores of shape (seeds, problems)."""
    seeds, count = scores.shape
    lists = pl.Series(by_seed("score"), np.ascontiguousarray(scores.T)).arr.to_list()
    columns = {"problem": np.arange(count), "num_samples": [seeds * SAMPLES] * count, "score": scores.mean(axis=0)}
    return pl.DataFrame(columns).with_columns(lists)


def test_seeds_that_do_not_differ_cost_no_width() -> None:
    assert seed_half_widths([np.tile(np.linspace(0, 1, 9), (seeds, 1)) for seeds in (1, 2, 5)]) == [0.0] * 3


def test_the_part_of_seeds_is_a_t_interval_of_their_means() -> None:
    """Where problems do not matter: three seeds at 0.4, 0.5 and 0.6 are ±4.303 x 0.1 / sqrt(3)."""
    values = np.repeat([[0.4], [0.5], [0.6]], 10, axis=1)
    (added,) = seed_half_widths([values])
    assert added == pytest.approx(0.2484, abs=1e-4)
    assert with_seeds(0.5, (0.2, 0.9), added) == pytest.approx((0.5 - 0.3895, 0.5 + 0.4708), abs=1e-4)
    assert with_seeds(0.5, (0.2, 0.9), added, (0.15, 0.95)) == (0.15, 0.95)


def test_mean_squares_are_those_worked_out_by_hand() -> None:
    """Sums of squares 13.5, 61 / 3 and 1, of 1, 2 and 2 degrees of freedom."""
    found = mean_squares(np.array([[1.0, 3.0, 6.0], [4.0, 7.0, 8.0]]))
    assert found == pytest.approx((13.5, 61 / 6, 0.5))


@given(arrays(float, st.tuples(st.integers(1, 4), st.integers(2, 8)), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])))
def test_intervals_hold_the_mean_and_those_over_problems(scores: np.ndarray) -> None:
    table = problems(scores)
    found, alone = mean_score(table), mean_score(table.drop(by_seed("score")))
    assert 0 <= found.low <= alone.low <= found.mean <= alone.high <= found.high <= 1
    assert np.allclose(seed_columns(table, "score"), scores)


def seeded(*seeds: int, **table: object) -> pl.DataFrame:
    """base and as many trainings, each with other luck."""
    rows = make_rows(strategies=["separate"], budgets=[16, 64], **table)  # type: ignore[arg-type]
    trained = rows.filter(model="trained")
    again = [
        trained.with_columns(
            model=pl.lit(f"trained@{seed}"), score=pl.col("score") * (pl.col("problem").hash(seed) % 4 > 0)
        )
        for seed in seeds
    ]
    return pl.concat([rows.filter(model="base"), *again])


def test_seeds_are_one_model_and_one_seed_is_as_ever() -> None:
    rows = seeded(1, 2, 3)
    found = seeds_as_one(rows)
    assert set(found["model"]) == {"base", "trained"} and found.height == rows.height
    assert found.filter(model="base")[TRAIN_SEED].null_count() == found.filter(model="base").height
    plain = make_rows(num_problems=2)
    assert seeds_as_one(plain) is plain
    cell = {"model": "trained", "benchmark": "hard", "think_budget": 64}
    one = rows.filter(pl.col("model") == "trained@2", benchmark="hard", think_budget=64)
    assert avg_at_k(seeds_as_one(seeded(2)).filter(**cell)) == avg_at_k(one)


def test_a_seed_whose_sweep_is_not_as_far_does_not_count_yet() -> None:
    rows = seeded(1, 2, 3, num_problems=6)
    begun = rows.filter((pl.col("model") != "trained@3") | (pl.col("problem") < "003"))
    assert seeds_as_one(begun).filter(model="trained")[TRAIN_SEED].unique().to_list() == [1, 2]
    names = rows["model"].replace({f"trained@{seed}": f"trained@{seed}>base" for seed in (1, 2, 3)})
    assert set(seeds_as_one(rows.with_columns(names))["model"]) == {"base", "trained>base"}


def test_a_mean_over_seeds_weighs_each_seed_and_each_problem_once() -> None:
    rows = seeds_as_one(seeded(1, 2, benchmarks=["hard"]))
    ours, base = rows.filter(model="trained", think_budget=64), rows.filter(model="base", think_budget=64)
    table = problem_table(ours, ["score"])
    assert table["score"].to_list() == pytest.approx(seed_columns(table, "score").mean(axis=0))
    alone = [avg_at_k(ours.filter(pl.col(TRAIN_SEED) == seed)).mean for seed in (1, 2)]
    assert avg_at_k(ours).mean == pytest.approx(np.mean(alone))
    assert paired_difference(ours, base).mean == pytest.approx(avg_at_k(ours).mean - avg_at_k(base).mean)


def test_cells_are_pooled_seed_by_seed() -> None:
    rows = seeds_as_one(seeded(1, 2, benchmarks=["hard"])).filter(model="trained")
    cells = problem_table(rows, ["score"], by=["think_budget"])
    assert np.allclose(seed_columns(pooled(cells), "score"), seed_columns(problem_table(rows, ["score"]), "score"))
    assert pooled(cells)["num_samples"].to_list() == problem_table(rows, ["score"])["num_samples"].to_list()


def test_an_interval_is_split_into_seeds_problems_and_samples() -> None:
    rows = seeds_as_one(seeded(1, 2, 3, benchmarks=["hard"]))
    ours, base = rows.filter(model="trained"), rows.filter(model="base")
    found = variance_split(ours, base)
    assert found is not None
    assert found.estimate == paired_difference(ours, base)
    assert found.half_width == pytest.approx((found.estimate.high - found.estimate.low) / 2, rel=0.02)
    assert sum(share for share in found.shares.values() if share is not None) == pytest.approx(1)
    assert (found.num_seeds, found.num_samples) == (3, 4)
    assert found.shares.keys() == found.twice.keys() == {"seeds", "problems", "samples"}
    assert all(value is not None and value <= found.half_width for value in found.twice.values())


def test_one_seed_or_one_sample_leaves_its_part_unknown() -> None:
    rows = make_rows(benchmarks=["hard"], strategies=["separate"], budgets=[16, 64])
    ours, base = rows.filter(model="trained"), rows.filter(model="base")
    one = variance_split(ours, base)
    assert one is not None and (one.shares["seeds"], one.twice["seeds"], one.num_seeds) == (None, None, 1)
    assert one.shares["problems"] + one.shares["samples"] == pytest.approx(1)  # type: ignore[operator]
    drawn_once = variance_split(*(side.filter(sample=0) for side in (ours, base)))
    assert drawn_once is not None and (drawn_once.shares["samples"], drawn_once.twice["samples"]) == (None, None)
    assert variance_split(ours, base.filter(problem="000")) is None


def test_the_split_tells_what_would_narrow_most() -> None:
    """Seeds that differ by much on many problems call for seeds; many samples of few problems for problems."""
    rng = np.random.default_rng(0)

    def table(*accuracies: float, problems: int, skill: float) -> pl.DataFrame:
        rows = make_rows(["base"], ["easy"], ["separate"], [16], problems, 8).drop("score")
        odds = dict(zip(rows["problem"].unique().sort(), rng.normal(0, skill, problems), strict=True))
        parts = []
        for seed, accuracy in enumerate(accuracies):
            chance = np.clip([accuracy + odds[name] for name in rows["problem"]], 0, 1)
            parts.append(
                rows.with_columns(
                    model=pl.lit(f"mine@{seed}"), score=pl.Series(1.0 * (rng.random(rows.height) < chance))
                )
            )
        return seeds_as_one(pl.concat(parts))

    def narrowing(rows: pl.DataFrame) -> str:
        shown = variance(rows, "base")
        assert shown is not None
        return str(shown.frame["narrows most"][0])

    assert narrowing(table(0.3, 0.5, 0.7, problems=200, skill=0.1)) == "more seeds"
    assert narrowing(table(*[0.5] * 8, problems=20, skill=0.3)) == "more problems"
