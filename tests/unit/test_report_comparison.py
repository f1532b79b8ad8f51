"""The comparison that a sweep prints: which lines, and what stands in them."""

import re

import polars as pl
import pytest

from elastic_core.statistics.accuracy import paired_difference
from elastic_core.statistics.estimates import sampled_tokens
from reports.comparison import paired_cells, render_comparison, render_pairs
from reports.summary import metric_name
from tests.unit.test_report_summary import make_rows


def test_one_model_and_one_cell_have_nothing_to_be_compared_with() -> None:
    rows = make_rows(models=["base"], benchmarks=["easy"], strategies=["unconstrained"], num_problems=1)
    header = ["strategy", "budget", "model", "accuracy (%)", "tokens", "problems × samples"]
    title, _, names, _, line, *_ = render_comparison(rows).splitlines()
    assert title == "easy: cells" and re.split(r"  +", names.strip()) == header
    assert "[0.0, ∞]" in line and "easy: accuracy over log2" not in render_comparison(rows)


def test_without_base_and_vanilla_the_first_by_name_are_the_baselines() -> None:
    rows = make_rows(models=["b", "a"], benchmarks=["easy"], strategies=["separate", "budget_forcing"], num_problems=3)
    some = rows.filter((pl.col("model") == "a") | (pl.col("think_budget") == 16))
    text = render_comparison(some)
    assert " − a " in text and " − budget forcing " in text
    of_b = [line for line in text.splitlines() if "16+32" in line and " b " in line]
    assert len(of_b) == 2, "a cell that one model lacks is left out"


def test_the_order_of_rows_changes_nothing() -> None:
    rows = make_rows(num_problems=5, budgets=[16, 48])
    assert render_comparison(rows.sample(fraction=1, shuffle=True, seed=1)) == render_comparison(rows)


def test_names_with_brackets_are_not_taken_for_markup() -> None:
    models = ["base", "[red]x[/red]\x1b[2J"]
    rows = make_rows(models=models, benchmarks=["easy"], strategies=["separate"], budgets=[16])
    assert "[red]x[/red]" in render_comparison(rows) and "\x1b" not in render_comparison(rows)


def test_a_model_without_answers_is_told_at_the_end() -> None:
    rows = make_rows(benchmarks=["easy"], strategies=["separate"], budgets=[192], num_problems=3)
    assert "holds an answer" not in render_comparison(rows)
    silent = pl.when(pl.col("model") == "base").then(pl.lit("no_answer")).otherwise("grade_status")
    last = render_comparison(rows.with_columns(grade_status=silent)).splitlines()[-1]
    assert last.startswith("None of the 12 responses of base")


PAIR_BUDGETS = (16, 48)


def pair_rows(**options: object) -> pl.DataFrame:
    given = {"benchmarks": ("easy",), "budgets": PAIR_BUDGETS, "num_problems": 10} | options
    return make_rows(**given).with_columns(tokens=sampled_tokens())  # type: ignore[arg-type]


def test_equal_cells_are_paired_and_agree_with_the_statistics() -> None:
    first, second = pair_rows(), pair_rows(num_problems=8, num_samples=2)
    table = paired_cells(first, second)
    assert table.height == 2 * (3 * len(PAIR_BUDGETS) + 1)
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
    base, trained = pair_rows(models=["base"]), pair_rows(models=["trained"])
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
        paired_cells(
            pair_rows(budgets=(16, 32), strategies=["separate"]), pair_rows(budgets=(48, 64), strategies=["separate"])
        )


def test_every_figure_is_printed_with_its_interval_and_count() -> None:
    text = render_pairs(paired_cells(pair_rows(), pair_rows()), "the first", "the second")
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
