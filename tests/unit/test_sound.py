"""The rows of a table that numbers are computed from: samples that every problem has."""

import polars as pl

from elastic_core.sweep.sound import whole_samples
from tests.unit.test_report_summary import make_rows


def rows(*missing: tuple[str, int]) -> pl.DataFrame:
    """Of 3 problems and 4 samples in one cell."""
    table = make_rows(["base"], ["easy"], ["separate"], [16], num_problems=3, num_samples=4)
    lost = pl.DataFrame(missing, {"problem": pl.String, "sample": table.schema["sample"]}, orient="row")
    return table.join(lost, on=["problem", "sample"], how="anti")


def test_samples_count_up_to_the_first_that_a_problem_lacks() -> None:
    # With many in flight a later sample is whole before an earlier one only where it holds no long response.
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
