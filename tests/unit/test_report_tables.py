"""The tables of a report, how their places read, and the numbers that others published."""

import csv
from pathlib import Path

import polars as pl
import pytest

import reports
from elastic_core.budget import TrainingBudget
from elastic_core.statistics.accuracy import paired_differences
from elastic_core.statistics.budgets import anytime_accuracy, budget_advice, cheapest_budgets, falls, marginal_accuracy
from elastic_core.statistics.cost import TOKENS, CostModel, cell_costs
from elastic_core.statistics.curves import area_differences
from elastic_core.statistics.thinking import thinking_spent
from reports.content import ReportTable, Shown, Training
from reports.parameters import ReportParameters
from reports.summary import COLUMNS, PUBLISHED, cell_problems, published, summarize
from reports.tables import budgets as budget_tables
from reports.tables import comparisons
from reports.tables import costs as cost_tables
from tests.unit.test_report_summary import make_rows


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return make_rows(models=["base", "trained", "base>trained"], num_problems=6, budgets=[16, 64])


@pytest.fixture(scope="module")
def summary(rows: pl.DataFrame) -> pl.DataFrame:
    return summarize(rows)


def test_an_estimate_is_one_place_and_is_sorted_by_its_mean() -> None:
    frame = pl.DataFrame(
        {"a": [1234.56, None], "a low": [1000.0, None], "a high": [float("inf"), None], "n": [5000, 2]}
    )
    table = ReportTable("t", "T", "", frame, signed=frozenset({"a"}))
    assert table.header == ["a", "n"]
    assert table.lines[0] == [Shown("+1,234.6 [+1,000.0, ∞]", 1234.56), Shown("5,000", 5000)]
    assert table.lines[1] == [Shown("", None), Shown("2", 2)]


def test_a_published_number_has_no_interval_and_no_brackets() -> None:
    frame = pl.DataFrame({"a": [12.0, 35.0], "a low": [10.0, None], "a high": [14.0, None]})
    assert [line[0].text for line in ReportTable("t", "T", "", frame).lines] == ["12.0 [10.0, 14.0]", "35.0"]


def test_models_side_by_side_with_what_was_published(summary: pl.DataFrame) -> None:
    summary = summary.with_columns(benchmark=pl.col("benchmark").replace({"hard": "aime-2024"}))
    table = comparisons.model_comparison(summary, published(["aime-2024", "easy"]))
    assert table is not None
    sources = table.frame["source"]
    assert (sources == "measured").sum() == 2 * (3 * 2 + 3)
    theirs = table.frame.filter(pl.col("source") != "measured")
    assert theirs["source"].str.starts_with("published (").all()
    assert theirs["accuracy (%) low"].null_count() == theirs.height
    assert {"not stated", "1024+1024", "unlimited"} <= set(theirs["budget"])
    assert "source" not in getattr(comparisons.model_comparison(summary, published([])), "header", ["source"])


def test_templates_are_held_against_separate_budgeting(rows: pl.DataFrame, summary: pl.DataFrame) -> None:
    assert comparisons.templates(paired_differences(rows, "strategy", "vanilla"), summary) is None
    separate = rows.filter(strategy="separate")
    guided = separate.with_columns(
        strategy=pl.lit("reasonflux_zero"), score=pl.lit(1.0), navigator_tokens=pl.lit(3, pl.Int32)
    )
    both = pl.concat([rows, guided.select(rows.columns)], how="vertical_relaxed")
    table = comparisons.templates(paired_differences(both, "strategy", "vanilla"), summarize(both))
    assert table is not None
    assert (table.frame["difference from separate"] >= 0).all()
    wrong = 1 - separate.filter(model="base", benchmark="hard", think_budget=16)["score"].mean()
    (line,) = table.frame.filter(pl.col("budget").str.starts_with("16+"), model="base", benchmark="hard").to_dicts()
    assert line["difference from separate"] == pytest.approx(100 * wrong)
    assert (
        line["difference from separate low"]
        <= line["difference from separate"]
        <= line["difference from separate high"]
    )
    assert (line["of the navigator"], line["tokens"]) == (3, line["tokens of separate"])


def test_pairs_say_who_thinks_and_who_solves(summary: pl.DataFrame) -> None:
    table = comparisons.swap_ablation(summary)
    assert table is not None
    roles = set(table.frame.select("thinks", "solves").rows())
    assert roles == {("base", "base"), ("trained", "trained"), ("base", "trained")}
    assert comparisons.swap_ablation(summary.filter(pl.col("model") == "base")) is None


def test_a_training_that_began_with_another_model_says_so(summary: pl.DataFrame) -> None:
    trainings = {"trained": Training(TrainingBudget.parse("96+32"), asks_length=False, base="base", metrics=None)}
    table = comparisons.trainings_side_by_side(summary, trainings)
    assert table is not None
    assert set(table.frame.select("model", "trained under", "from").rows()) == {("trained", "96+32", "base")}
    assert comparisons.trainings_side_by_side(summary, {}) is None


def test_cells_of_a_half_done_sweep_are_marked(rows: pl.DataFrame) -> None:
    half = summarize(rows.filter((pl.col("model") != "trained") | (pl.col("problem") < "003")))
    table = comparisons.model_comparison(half, published([]))
    assert table is not None
    counts = table.frame.select("model", "problems × samples")
    assert set(counts.filter(model="trained")["problems × samples"]) == {"3 × 4 †"}
    assert set(counts.filter(model="base")["problems × samples"]) == {"6 × 4"}


def test_differences_are_in_points_and_signed(rows: pl.DataFrame) -> None:
    paired = paired_differences(rows, "model", "base")
    table = comparisons.paired(paired, "model", "base")
    assert table is not None
    name = "difference from base"
    assert table.frame[name].sum() == pytest.approx(100 * paired.filter(first="base")["difference"].sum())
    assert all(line[table.header.index(name)].text[0] in "+-" for line in table.lines)
    assert comparisons.paired(paired, "model", "nobody") is None


def test_strategies_and_models_are_compared_at_equal_tokens_too(rows: pl.DataFrame) -> None:
    by_strategy, by_model = area_differences(rows, "strategy", "vanilla"), area_differences(rows, "model", "base")
    table = comparisons.equal_tokens(by_strategy, by_model)
    assert table is not None
    assert {"separate − vanilla", "budget forcing − vanilla", "trained − base"} <= set(table.frame["compared"])
    (line,) = table.frame.filter(benchmark="hard", compared="separate − vanilla", of="base").to_dicts()
    assert line["difference (points) low"] < line["difference (points)"] < line["difference (points) high"]
    assert (line["problems"], line["trajectories"]) == (6, 2 * 2 * 6 * 4)
    assert line["tokens from"] < line["tokens to"]
    assert comparisons.equal_tokens(by_strategy.clear(), by_model.clear()) is None


def test_the_advice_is_the_cheapest_budget_that_holds_with_its_cost_and_its_tail(rows: pl.DataFrame) -> None:
    budgets = budget_advice(cell_problems(rows))
    costs = cell_costs(rows.select(COLUMNS), TOKENS)
    table = budget_tables.advice(budgets, costs, "tokens processed")
    chosen = cheapest_budgets(budgets)
    assert table is not None
    assert table.frame["within 2 points"].to_list() == chosen["verdict"].to_list()
    assert table.frame["tokens processed"].to_list() == chosen["cost"].to_list()
    assert (table.frame["tokens processed, p95"] >= table.frame["tokens processed"]).all()
    assert budget_tables.advice(budgets.clear(), costs, "tokens processed") is None


def test_costs_have_a_mean_and_a_tail_under_every_model(rows: pl.DataFrame, summary: pl.DataFrame) -> None:
    parameters = ReportParameters(prices=CostModel(0.5, 0.05, 2.5))
    measured = {"trained@1": CostModel(0.001, 0, 0.01, 0.2), "trained@2": CostModel(1)}
    models = cost_tables.cost_models(parameters, measured, rows["model"].unique())
    table = cost_tables.costs(summary, models, cost_tables.costs_by_unit(rows.select(COLUMNS), models))
    work = table.frame.select("input", "cached input", "output")
    expected = 0.5 * work["input"] + 0.05 * work["cached input"] + 2.5 * work["output"]
    assert table.frame["cost per million responses"].to_list() == pytest.approx(expected.to_list())
    assert table.frame["tokens processed"].mean() < table.frame["tokens processed, p95"].mean()
    ours = table.frame.filter(model="trained")
    alone = 1 * ours["input"] + 10 * ours["output"] + 200 * ours["turns"]
    assert ours["milliseconds alone on its engine"].to_list() == pytest.approx(alone.to_list())
    assert table.frame.filter(model="base")["milliseconds alone on its engine"].null_count() == ours.height
    assert "2.5 per output token" in table.caption


def test_falls_and_anytime_accuracy_are_tables_where_there_are_any(rows: pl.DataFrame) -> None:
    problems = cell_problems(rows)
    anytime = anytime_accuracy(problems)
    assert getattr(budget_tables.anytime(anytime, "log-uniform"), "frame", pl.DataFrame()).height == anytime.height
    assert budget_tables.anytime(anytime.clear(), "log-uniform") is None
    assert budget_tables.falls(falls(problems)) is None


def test_thinking_and_marginal_tables_need_their_rows(rows: pl.DataFrame) -> None:
    spent, gains = thinking_spent(rows), marginal_accuracy(cell_problems(rows))
    assert getattr(budget_tables.thinking(spent), "frame", pl.DataFrame()).height == spent.height
    assert getattr(budget_tables.marginal(gains), "frame", pl.DataFrame()).height == gains.height
    assert budget_tables.thinking(spent.clear()) is None
    assert budget_tables.marginal(gains.clear()) is None


def test_every_published_number_is_complete_and_stands_there_once() -> None:
    file = Path(reports.__file__).with_name("assets") / "published.csv"
    with file.open(newline="") as stream:
        benchmarks = {row["benchmark"] for row in csv.DictReader(stream)}
    rows = published(sorted(benchmarks))
    assert rows.schema == PUBLISHED
    for column in ("model", "benchmark", "metric", "value", "source"):
        assert rows[column].null_count() == 0
    assert not rows.is_duplicated().any()
    shares = rows.filter(pl.col("metric") != "rating")
    assert shares["value"].is_between(0, 100).all()
    budgets = set(rows["think_budget"].drop_nulls()) | set(rows["solution_budget"].drop_nulls())
    assert all(budget == "unlimited" or budget.isdigit() for budget in budgets)


def test_nothing_is_published_about_a_benchmark_of_ones_own() -> None:
    assert published(["miniature-easy"]).is_empty()
