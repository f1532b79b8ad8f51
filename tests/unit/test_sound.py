"""The rows of a table that numbers are computed from: those that obey the rules, of samples that every problem has."""

from typing import Any

import polars as pl
import pytest

from elastic_core.errors import UserError
from elastic_core.strategies import STRATEGIES
from elastic_core.sweep.sound import check_rows, whole_samples
from tests.unit.test_report_summary import make_rows


def rows(*missing: tuple[str, int]) -> pl.DataFrame:
    """Of 3 problems and 4 samples in one cell."""
    table = make_rows(["base"], ["easy"], ["separate"], [16], num_problems=3, num_samples=4)
    lost = pl.DataFrame(missing, {"problem": pl.String, "sample": table.schema["sample"]}, orient="row")
    return table.join(lost, on=["problem", "sample"], how="anti")


def test_samples_count_up_to_the_first_that_a_problem_lacks() -> None:
    # Of many samples drawn at once a later one is whole before an earlier one only if it holds no long response.
    found = whole_samples(rows(("001", 1), ("002", 3)))
    assert found.rows["sample"].unique().to_list() == [0]
    assert found.left_out.is_empty()


def test_a_cell_whose_first_sample_lacks_problems_is_left_out_with_how_many() -> None:
    found = whole_samples(rows(("001", 0)))
    assert found.rows.is_empty()
    assert found.left_out["num_missing"].to_list() == [1]
    assert whole_samples(rows(), {"easy": 5}).left_out["num_missing"].to_list() == [2]


def test_a_complete_table_stays_as_it_is() -> None:
    assert whole_samples(rows()).rows.equals(rows())


def one_row(strategy: str, **counts: Any) -> pl.DataFrame:
    """Under (16, 8), of what any strategy may have: a short thought that the model closed."""
    (row,) = make_rows(["base"], ["easy"], ["separate"], [16], num_problems=1, num_samples=1).rows(named=True)
    allowed = {"think_tokens": 9, "solution_tokens": 7, "forced_tokens": 0, "think_finish": "closed"}
    return pl.DataFrame([row | allowed | {"solution_budget": 8, "strategy": strategy} | counts], rows().schema)


@pytest.mark.parametrize("strategy", [*STRATEGIES, "adaptive_agree2_every4", "of_another_installation"])
def test_a_row_within_its_limits_breaks_no_rule(strategy: str) -> None:
    check_rows(one_row(strategy), "the table")


@pytest.mark.parametrize(
    ("strategies", "counts", "rule"),
    [
        ("separate separate_native budget_forcing adaptive reasonflux_zero", {"think_tokens": 17}, "thinking keeps t"),
        ("separate separate_native budget_forcing_wait4 adaptive_agree2_every4", {"solution_tokens": 9}, "keeps s"),
        ("vanilla", {"think_tokens": 16, "solution_tokens": 9}, r"keep t \+ s"),
        ("l1_exact", {"think_tokens": 42}, r"keep 2 \(t \+ s\)"),
        ("l1_max", {"think_tokens": 8190}, "keep 8192"),
        ("vanilla l1_exact l1_max unconstrained effort_low", {"forced_tokens": 1}, "no token is forced"),
        ("separate budget_forcing reasonflux_zero", {"think_finish": "forced"}, "forced exactly at t"),
        ("separate budget_forcing", {"forced_tokens": 1}, "a closed thought needs no forced token"),
        ("separate separate_native", {"think_finish": "end_of_text"}, "all of s is there"),
        ("separate vanilla of_another_installation", {"navigator_tokens": 10}, "the navigator's tokens"),
        ("separate vanilla of_another_installation", {"score": 1.5}, "the score is in"),
    ],
)
def test_a_row_beyond_a_limit_of_its_strategy_is_named_with_the_rule(
    strategies: str, counts: dict[str, Any], rule: str
) -> None:
    for strategy in strategies.split():
        with pytest.raises(UserError, match=f"1 of 1 rows break a rule .*{rule}.*strategy {strategy}"):
            check_rows(one_row(strategy, **counts), "the table")
