"""Sequential sampling: the widest interval decides, and samples grow until it is narrow or the cap is there."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.statistics.accuracy import avg_at_k
from elastic_core.sweep.grid import Cell
from elastic_core.sweep.stopping import beyond_reach, next_samples, problems_needed, projection, reach, widest
from flows.commands.sweeps import narrowest
from flows.runtime.stages import Stages


def rows(strategy: str, scores: list[float]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "model": "base", "benchmark": "easy", "strategy": strategy, "think_budget": 8, "solution_budget": None,
            "problem": [str(i) for i in range(len(scores))], "sample": 0, "score": scores,
        },
        schema_overrides={"solution_budget": pl.Int32},
    )  # fmt: skip


def cells(*strategies: str) -> list[Cell]:
    return [Cell("base", "easy", strategy, Budget(8, None)) for strategy in strategies]


def test_the_widest_cell_is_named_with_its_half_width_in_points() -> None:
    split, sure = rows("vanilla", [0.0, 1.0] * 20), rows("separate", [1.0] * 40)
    found = widest(pl.concat([split, sure]).lazy(), cells("vanilla", "separate"))
    assert found.cell == "base easy vanilla 8+unlimited"
    accuracy = avg_at_k(split)
    assert found.half_width == pytest.approx(100 * (accuracy.high - accuracy.low) / 2)


def test_a_lopsided_interval_counts_with_its_longer_side() -> None:
    accuracy = avg_at_k(rows("separate", [1.0] * 10))
    assert widest(rows("separate", [1.0] * 10).lazy(), cells("separate")).half_width == pytest.approx(
        100 * (1 - accuracy.low)
    )


def test_a_cell_that_nobody_asks_for_any_more_decides_nothing() -> None:
    table = pl.concat([rows("vanilla", [0.0, 1.0]), rows("separate", [1.0] * 40)])
    assert widest(table.lazy(), cells("separate")) == widest(rows("separate", [1.0] * 40).lazy(), cells("separate"))
    with pytest.raises(ValueError, match="no rows"):
        widest(table.lazy(), cells("unconstrained"))


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_samples_grow_until_the_cap(now: int, cap: int) -> None:
    following = next_samples(now, cap)
    assert following == cap or following > now
    assert following <= cap


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), min_size=2, max_size=40))
def test_no_scores_make_an_interval_narrower_than_what_is_within_reach(scores: list[list[float]]) -> None:
    table = pl.concat([rows("separate", list(sample)) for sample in zip(*scores, strict=True)])
    assert widest(table.lazy(), cells("separate")).half_width >= reach(len(scores), 4).alike - 0.01


def test_two_points_cannot_be_had_of_thirty_problems_and_it_is_said_what_can() -> None:
    best = reach(30, 256)
    assert (round(best.alike, 1), round(best.certain, 1)) == (4.6, 11.9)
    assert best.certain == pytest.approx(widest(rows("separate", [1.0] * 30).lazy(), cells("separate")).half_width)
    effective = 30 * 31 / 32
    assert best.certain == pytest.approx(100 * (1 - 0.025 ** (1 / effective)), abs=0.01)
    (sentence,) = beyond_reach(2.0, {"aime-2024": 30, "math-500": 500}, 256)
    assert sentence.startswith("aime-2024 has 30 problems") and "±4.6" in sentence and "±11.9" in sentence
    needed = problems_needed(2.0, 256)
    assert f" {needed.alike} problems" in sentence and f" {needed.certain}" in sentence
    assert beyond_reach(2.0, {"enough": int(needed.alike)}, 256) == []
    assert beyond_reach(2.0, {"too few": int(needed.alike) - 1}, 256) != []


def test_few_samples_keep_intervals_wide_however_many_the_problems() -> None:
    assert reach(200, 4).alike > reach(200, 64).alike
    (sentence,) = beyond_reach(0.01, {"easy": 100}, 4)
    assert "10,000" in sentence


def test_a_projection_keeps_what_the_problems_differ_by_and_takes_off_what_their_samples_do() -> None:
    rng = np.random.default_rng(0)
    harder = rng.uniform(0.2, 0.8, 200)
    few, many = (
        pl.concat([rows("separate", list((rng.random(200) < harder).astype(float))) for _ in range(count)])
        for count in (4, 64)
    )
    asked = cells("separate")
    projected = widest(few.lazy(), asked, 64)
    assert projected.half_width == pytest.approx(widest(many.lazy(), asked).half_width, rel=0.1)
    assert projected.half_width < 0.8 * widest(few.lazy(), asked).half_width
    assert widest(few.lazy(), asked, 4) == widest(few.lazy(), asked)
    assert "more problems" in projection(projected, 64)


def test_nothing_is_projected_away_of_problems_that_were_sampled_once() -> None:
    once = rows("separate", [0.0, 1.0] * 20)
    table, asked = once.lazy(), cells("separate")
    assert widest(table, asked, 256).half_width == pytest.approx(widest(once.lazy(), asked).half_width, rel=0.02)


@given(st.dictionaries(st.text(), st.integers(1, 99), min_size=1), st.integers(99, 300))
def test_each_benchmark_s_samples_grow_by_themselves_up_to_the_cap(now: dict[str, int], cap: int) -> None:
    following = next_samples(now, cap)
    assert following == {name: next_samples(number, cap) for name, number in now.items()}
    assert (following == now) == all(number == cap for number in now.values())


# What is refused before anything takes long, and said in a plan.


def stages(until_ci: float | None, num_problems: int) -> Stages:
    """Of a sweep of one benchmark, as far as its intervals are concerned."""
    settings: Any = SimpleNamespace(sweep=SimpleNamespace(until_ci=until_ci, max_samples=256))
    found = Stages(settings, Path("runs"))
    found.__dict__["problems"] = {"aime-2024": [None] * num_problems}
    return found


def sweep(num_problems: int, scores: list[float]) -> Any:
    cell = Cell("base", "easy", "separate", Budget(8, None))
    once = rows("separate", scores)
    table = pl.concat([once, once.with_columns(sample=pl.col("sample") + 1)]) if scores else once
    return SimpleNamespace(
        problems={"easy": [None] * num_problems}, models=[SimpleNamespace(cells=[cell])], scores=table.lazy
    )


def test_two_points_of_thirty_problems_are_refused_with_what_can_be_reached() -> None:
    with pytest.raises(UserError, match=r"until_ci .*aime-2024 .* 30 .*±4\.6.*±11\.9"):
        stages(2.0, 30).require_reachable()


@pytest.mark.parametrize(("until_ci", "num_problems"), [(None, 30), (5.0, 30), (2.0, 100)])
def test_what_some_scores_could_reach_is_not(until_ci: float | None, num_problems: int) -> None:
    stages(until_ci, num_problems).require_reachable()


def test_a_plan_says_what_is_refused_which_cells_stay_wide_and_what_the_rows_so_far_project() -> None:
    (refused,) = narrowest(sweep(30, []), 2.0, 256)
    assert refused.startswith("until_ci=2 ") and "easy has 30 problems" in refused
    assert narrowest(sweep(30, []), 12.0, 256) == []
    assert narrowest(sweep(30, [0.0, 1.0] * 10), 12.0, 256) == [], "no sample is whole yet"
    (certain,) = narrowest(sweep(30, []), 5.0, 256)
    _, projected = narrowest(sweep(30, [0.0, 1.0] * 15), 5.0, 256)
    assert "±11.9" in certain and "256 samples" in projected
