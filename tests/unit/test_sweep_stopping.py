"""Sequential sampling: the widest interval decides, and samples grow until it is narrow or the cap is there."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.statistics.accuracy import avg_at_k
from elastic_core.sweep.grid import Cell
from elastic_core.sweep.plan import next_samples, widest


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
