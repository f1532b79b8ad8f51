"""What `elastic compare` prints: which cells belong together, and what the table says of them."""

import polars as pl
import pytest

from elastic_core.statistics.accuracy import paired_difference
from elastic_core.statistics.estimates import sampled_tokens
from reports.comparison import paired_cells, render_pairs
from reports.summary import metric_name
from tests.unit.test_report_summary import make_rows

BUDGETS = (16, 48)


def rows(**options: object) -> pl.DataFrame:
    given = {"benchmarks": ("easy",), "budgets": BUDGETS, "num_problems": 10} | options
    return make_rows(**given).with_columns(tokens=sampled_tokens())  # type: ignore[arg-type]


def test_equal_cells_are_paired_and_agree_with_the_statistics() -> None:
    first, second = rows(), rows(num_problems=8, num_samples=2)
    table = paired_cells(first, second)
    assert table.height == 2 * (3 * len(BUDGETS) + 1)
    assert table["num_problems"].unique().to_list() == [8], "those that both have"
    at = {"model": "trained", "strategy": "separate"}
    line = table.filter(budget="48+32", **at).row(0, named=True)
    cell = [side.filter(think_budget=48, **at) for side in (second, first)]
    difference = paired_difference(*cell)
    assert (line["difference"], line["difference_low"], line["difference_high"]) == pytest.approx(difference[:3])
    assert line["accuracy_b"] - line["accuracy_a"] == pytest.approx(line["difference"])
    assert line["num_trajectories"] == 8 * 2 + 8 * 4


def test_what_each_side_has_one_of_is_each_others() -> None:
    """Two models trained apart, or two cells: their names need not agree."""
    base, trained = rows(models=["base"]), rows(models=["trained"])
    table = paired_cells(base, trained)
    assert table["model"].unique().to_list() == ["base → trained"]
    assert table["budget"].n_unique() == 3
    cell = [
        part.filter(strategy=name, think_budget=t)
        for part, name, t in ((base, "vanilla", 16), (trained, "separate", 48))
    ]
    (line,) = paired_cells(*cell).to_dicts()
    assert (line["strategy"], line["budget"]) == ("vanilla → separate", "16+32 → 48+32")


def test_nothing_in_common_is_said() -> None:
    with pytest.raises(ValueError, match=r"no two cells agree in benchmark, .*think_budget"):
        paired_cells(rows(budgets=(16, 32), strategies=["separate"]), rows(budgets=(48, 64), strategies=["separate"]))


def test_every_figure_is_printed_with_its_interval_and_count() -> None:
    text = render_pairs(paired_cells(rows(), rows()), "the first", "the second")
    assert text.startswith("A is the first\nB is the second\n")
    lines = [line for line in text.splitlines() if line.lstrip().startswith("easy ")]
    assert len(lines) == 14
    assert all(line.count("[") == 6 and line.split()[-1] == "10" for line in lines)
    assert all("+0.0 [" in line for line in lines)


def test_a_metrics_name_has_no_character_that_mlflow_refuses() -> None:
    row = {"benchmark": "easy", "model": "a>b → b>a", "strategy": "vanilla"}
    assert metric_name("difference", row) == "difference/easy/a-then-b-to-b-then-a/vanilla"
    seed = {"benchmark": "easy", "model": "trained@2", "strategy": "vanilla"}
    assert metric_name("accuracy", seed) == "accuracy/easy/trained-seed-2/vanilla"
