"""Problems that come in groups: the estimate is the mean over problems, the interval is over groups."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from elastic_core.statistics.accuracy import mean_score, paired_difference, score_difference, variance_split
from elastic_core.statistics.budgets import anytime_accuracy, falls, marginal_accuracy
from elastic_core.statistics.cost import p95
from elastic_core.statistics.curves import area_difference, log_law, read_curve
from elastic_core.statistics.estimates import (
    CLUSTER,
    length_error,
    mean_tokens,
    num_units,
    paired_ratio,
    problem_table,
    seeds_as_one,
    unit_losses,
    unit_values,
    units,
)
from elastic_core.trajectory import CELL
from tests.unit.test_report_summary import make_rows

sizes = st.lists(st.integers(1, 6), min_size=2, max_size=8)


def grouped(of: int = 4, **table: object) -> pl.DataFrame:
    """Rows of 40 problems in groups of so many, that tell of nothing within a group."""
    rows = make_rows(benchmarks=["hard"], strategies=["separate"], budgets=[16, 64, 256], num_problems=40, **table)  # type: ignore[arg-type]
    first = pl.col("problem").cast(pl.Int64) // of * of
    return rows.with_columns(cluster=pl.format("group {}", first))


@given(sizes, st.integers(0, 99))
def test_values_by_unit_have_the_mean_and_the_cluster_robust_variance(sizes: list[int], seed: int) -> None:
    """Liang and Zeger's: of G groups G / (G - 1) times the sum of the squared sums of residuals, over n²."""
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    values = np.random.default_rng(seed + 1).normal(size=len(groups))
    found = unit_values(values, groups)
    residuals = np.bincount(groups, weights=values - values.mean())
    variance = len(sizes) / (len(sizes) - 1) * (residuals**2).sum() / len(groups) ** 2
    assert found.mean() == pytest.approx(values.mean())
    if len(set(sizes)) == 1:
        assert found.var(ddof=1) / len(sizes) == pytest.approx(variance)


def test_unequal_groups_have_bell_and_mccaffreys_degrees_of_freedom() -> None:
    """Satterthwaite's of the quadratic form that is the variance, from the matrix itself."""
    groups = np.repeat(np.arange(6), [1, 2, 3, 4, 10, 20])
    count = len(groups)
    hat = np.full((count, count), 1 / count)
    rows = []
    for group in range(6):
        mine = groups == group
        size = mine.sum()
        # (I - H)^(-1/2) of the group, applied to ones: they are its eigenvector of value 1 - size / n.
        rows.append((np.eye(count) - hat)[mine].sum(axis=0) / np.sqrt(1 - size / count) / count)
    values = np.linalg.eigvalsh(np.array(rows) @ np.array(rows).T)
    degrees = values.sum() ** 2 / (values**2).sum()
    draws = np.random.default_rng(0).normal(size=count)
    residuals = np.bincount(groups, weights=draws - draws.mean())
    corrected = residuals / np.sqrt(1 - np.bincount(groups) / count) / count
    half = t.ppf(0.975, 5) * unit_values(draws, groups).std(ddof=1) / np.sqrt(6)
    # Corrected departures no longer add up to 0, and their mean is taken out.
    assert half == pytest.approx(t.ppf(0.975, degrees) * np.sqrt((corrected**2).sum() - corrected.sum() ** 2 / 6))


def test_a_group_without_a_name_is_its_problem_alone() -> None:
    rows = pl.DataFrame(
        {"problem": ["a", "b", "c", "d"], CLUSTER: ["x", None, "x", None], "score": [1.0, 0.0, 0.5, 0.0]}
    )
    assert num_units(rows) == 3
    found = problem_table(rows, ["score"])
    assert found[CLUSTER].to_list() == ["x", None, "x", None] and units(found, "score").shape == (1, 3)
    assert mean_score(problem_table(rows.with_columns(cluster=pl.lit(None, pl.String)), ["score"])) == mean_score(
        problem_table(rows.drop(CLUSTER), ["score"])
    )


def test_problems_that_agree_within_groups_count_as_often_as_groups() -> None:
    """The same scores as groups of five, and as one problem of each."""
    scores = np.random.default_rng(0).integers(0, 2, 40).astype(float)
    alone = pl.DataFrame({"problem": range(40), "num_samples": 1, "score": scores})
    names = np.repeat([f"group {number}" for number in range(40)], 5)
    five = pl.DataFrame({"problem": range(200), "num_samples": 1, "score": np.repeat(scores, 5), CLUSTER: names})
    one, many = mean_score(alone), mean_score(five)
    assert many[:3] == pytest.approx(one[:3]) and (many.num_problems, one.num_problems) == (200, 40)
    tails = [p95(each.with_columns(cost=pl.col("problem").cast(pl.Int64) % 7), "cost")[:3] for each in (alone, five)]
    assert tails[0][0] == tails[1][0] == 6 and tails[0][2] == tails[1][2] == np.inf
    other = pl.col("score").reverse()
    differences = (score_difference(each, each.with_columns(other)) for each in (alone, five))
    assert next(differences)[:3] == pytest.approx(next(differences)[:3])


def test_every_interval_over_problems_is_over_groups() -> None:
    """All problems of a group are given the rows of its first, so nothing is known but of ten of them."""
    rows = grouped(of=10, num_samples=4)
    first = pl.col("problem").cast(pl.Int64) % 10 == 0
    copied = rows.filter(first).select(pl.exclude("problem", "solution_budget"), "solution_budget")
    rows = rows.select("problem", "cluster", *CELL, "sample").join(
        copied, on=["cluster", *CELL, "sample"], how="left", nulls_equal=True
    )
    rows = rows.with_columns(tokens=pl.col("think_tokens") + pl.col("solution_tokens"))
    mine, base = (rows.filter(model=name) for name in ("trained", "base"))
    for of in (
        lambda ours, theirs: paired_difference(ours.filter(think_budget=64), theirs.filter(think_budget=64)),
        lambda ours, theirs: mean_score(problem_table(ours.filter(think_budget=64), ["score"])),
        lambda ours, theirs: area_difference(read_curve(ours), read_curve(theirs)),
        lambda ours, theirs: log_law(ours).slope,
        lambda ours, theirs: variance_split(ours, theirs).estimate,
        lambda ours, theirs: anytime_accuracy(problem_table(ours, ["score"], CELL)).row(0)[-5:],
        lambda ours, theirs: marginal_accuracy(problem_table(ours, ["score", "tokens"], CELL)).row(0)[-5:],
    ):
        wide, narrow = (
            of(*(each.drop(dropped, strict=False) for each in (mine, base))) for dropped in ("none", CLUSTER)
        )
        assert wide[0] == pytest.approx(narrow[0]) and wide[3:5] == narrow[3:5]
        assert narrow[2] - narrow[1] < (np.inf if None in wide[1:3] else wide[2] - wide[1])


def test_lengths_of_fewer_groups_than_thirty_are_unbounded() -> None:
    rows = grouped(of=2, num_samples=2).with_columns(tokens=pl.col("think_tokens"))
    mine, base = (rows.filter(model=name, think_budget=256) for name in ("trained", "base"))
    table = problem_table(mine, ["tokens"])
    assert mean_tokens(table, "tokens").high == np.inf > mean_tokens(table.drop(CLUSTER), "tokens").high
    alone = (each.drop(CLUSTER) for each in (mine, base))
    assert paired_ratio(mine, base, "tokens").low == -np.inf < paired_ratio(*alone, "tokens").low
    assert length_error(mine).high == np.inf


def test_groups_are_kept_over_seeds_and_where_falls_are_sought() -> None:
    rows = grouped(num_samples=2).filter(pl.col("model") == "trained")
    seeded = seeds_as_one(pl.concat([rows.with_columns(model=pl.lit(f"mine@{seed}")) for seed in (1, 2)]))
    cells = problem_table(seeded, ["score"], CELL)
    assert cells[CLUSTER].n_unique() == 10
    assert falls(cells).height <= 1


def test_losses_by_unit_weigh_what_their_problems_do() -> None:
    """For a test by betting: the mean loss over problems is that of the units' mean losses times their weights."""
    problems = pl.DataFrame({"problem": ["c", "a", "b", "d"], CLUSTER: ["y", None, "y", "y"]})
    losses, weights, first = unit_losses(np.array([0.5, 1.0, -0.5, 0.0]), problems)
    assert (losses.tolist(), first.to_list()) == ([1.0, 0.0], ["a", "c"])
    assert weights.tolist() == pytest.approx([1 / 3, 1.0])
    assert (losses * weights).sum() / weights.sum() == pytest.approx(0.25)
    alone, ones, _ = unit_losses(np.array([0.5, 1.0, -0.5, 0.0]), problems.drop(CLUSTER))
    assert alone.tolist() == [1.0, -0.5, 0.5, 0.0] and set(ones) == {1.0}
