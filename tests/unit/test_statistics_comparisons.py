"""Paired differences for a whole table: which pairs there are, and that each is what two cells alone would give."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from elastic_core.statistics.accuracy import paired_difference, paired_differences
from elastic_core.statistics.intervals import Estimate
from tests.unit.test_report_summary import make_rows


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
