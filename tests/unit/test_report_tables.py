"""The tables of a report, how their places read, and the numbers that others published."""

import polars as pl
import pytest

from elastic_core.budget import TrainingBudget
from elastic_core.statistics.accuracy import paired_differences, published_differences
from elastic_core.statistics.cost import TOKENS, CostModel, cell_costs
from elastic_core.statistics.estimates import seeds_as_one
from elastic_core.statistics.which_budget import advised_budgets, budget_advice, choose_budgets
from reports.content import RATINGS, ReportParameters, ReportTable, Shown, Training
from reports.summary import cell_problems, report_rows, summarize, summarize_problems
from reports.tables import ACCURACY, PUBLISHED, comparisons, everything, published
from reports.tables import budgets as budget_tables
from reports.tables import costs as cost_tables
from tests.tables import advisable, graded_twice
from tests.unit.test_report_summary import make_rows

UNRATED, NOTHING = RATINGS.to_frame(), PUBLISHED.to_frame()
TABLE_1 = ["livecodebench", "codeforces", "humaneval-plus", "aime-2024"]


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
    published = pl.DataFrame({"a": [35.0], "a low": [None], "a high": [None]}, schema_overrides={"a low": pl.Float64})
    assert ReportTable("t", "T", "", published).lines[0][0].text == "35.0", "a published number has no interval"


def test_table_1_is_one_line_per_model_and_budget_and_ours_stand_in_it(summary: pl.DataFrame) -> None:
    summary = summary.with_columns(benchmark=pl.lit("codeforces")).filter(strategy="separate", model="base")
    summary = summary.unique(["think_budget"])
    rated = summary.filter(think_budget=16).select(
        *RATINGS.names()[:5],
        *(pl.lit(float(i)).alias(name) for i, name in enumerate(RATINGS.names()[5:11])),
        num_contests=pl.lit(3, pl.Int64),
    )
    table = comparisons.model_comparison(summary, rated, published(TABLE_1, ["E1-Code-14B"]))
    assert table is not None
    (line,) = (each for each in table.lines if (each[0].text, each[1].text) == ("base", "16+32"))
    shown = dict(zip(table.header, (place.text for place in line), strict=True))
    assert shown["codeforces rating"] == "0.0 [1.0, 2.0]" and shown["codeforces percentile"] == "3.0 [4.0, 5.0]"
    names = [f"{name} (%)" for name in ("livecodebench", "humaneval-plus", "aime-2024")]
    paper = table.frame.filter(pl.col("source") == "published: Elastic Reasoning, arXiv 2505.05315")
    found = {row[:2]: row[2:] for row in paper.select("model", "budget", "codeforces rating", *names).rows()}
    assert found["E1-Code-14B", "4096+1024"] == (1771, 47.0, 92.0, 41.9)
    assert found["E1-Code-14B", "unlimited"] == (1987, 58.4, 91.4, 70.6)
    assert found["DeepCoder-14B", "unlimited"] == (1945, 58.1, 90.8, 71.7)
    assert found["R1-Distill-Qwen-14B", "not stated"] == (1791, 53.0, 92.0, 69.7)
    assert found["O1-2024-12-17 (Low)", "not stated"] == (1991, 59.5, 90.8, 74.4)
    assert found["O3-Mini-2025-1-31 (Low)", "not stated"] == (1918, 60.9, 92.6, 60.0)
    assert found["O1-Preview", "not stated"] == (1658, 42.7, 89.0, 40.0)
    assert found["DeepSeek-R1", "not stated"] == (1948, 62.8, 92.6, 79.8)
    assert len(found) == 11


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


def test_tables_2_and_3_stand_beside_what_was_measured(summary: pl.DataFrame) -> None:
    theirs = published(["aime-2024"], ["E1-Math-1.5B"])
    swaps = comparisons.swap_ablation(summary, theirs)
    trained = {"trained": Training(TrainingBudget.parse("96+32"), asks_length=False, base="base", metrics=None)}
    trainings = comparisons.trainings_side_by_side(summary, trained, theirs)
    assert swaps is not None and trainings is not None
    for table, names, place in ((swaps, ["thinks", "solves"], "Table 2"), (trainings, ["model"], "Table 3")):
        beside = table.frame.filter(pl.col("source") == f"published: Elastic Reasoning, arXiv 2505.05315, {place}")
        found: dict[tuple[str, ...], list[float]] = {}
        for *key, value in beside.select(*names, "accuracy (%)").rows():
            found.setdefault(tuple(key), []).append(value)
        base, e1 = "DeepScaleR-1.5B", "E1-Math-1.5B"
        assert (
            found
            == {
                "Table 2": {
                    (base, base): [2.1, 4.8, 12.5, 20.0],
                    (e1, base): [3.5, 7.9, 20.6, 24.0],
                    (base, e1): [10.8, 14.2, 21.9, 26.4],
                    (e1, e1): [13.5, 17.5, 24.8, 27.9],
                },
                "Table 3": {(e1,): [13.5, 17.5, 24.8, 27.9], (f"{e1}, iterative",): [11.5, 17.1, 22.9, 26.7]},
            }[place]
        )
        assert beside["budget"].to_list()[:4] == ["512+1024", "1024+1024", "2048+1024", "3072+1024"]
        assert (table.frame["source"] == "measured").any()


def test_cells_of_a_half_done_sweep_are_marked(rows: pl.DataFrame) -> None:
    half = summarize(rows.filter((pl.col("model") != "trained") | (pl.col("problem") < "003")))
    table = comparisons.model_comparison(half, UNRATED, NOTHING)
    assert table is not None
    assert set(table.frame.filter(model="trained")["source"]) == {"measured †"}
    assert set(table.frame.filter(model="base")["source"]) == {"measured"}
    assert "hard: 3 to 6 problems × 4 samples" in table.caption
    swaps = comparisons.swap_ablation(half, NOTHING)
    assert swaps is not None
    assert set(swaps.frame.filter(thinks="trained")["problems × samples"]) == {"3 × 4 †"}


@pytest.mark.parametrize("seeds", [1, 2])
def test_two_gradings_differ_by_the_points_that_they_differ_by(seeds: int) -> None:
    rows = graded_twice()
    if seeds > 1:
        rows = pl.concat(rows.with_columns(model=pl.lit(f"base@{seed}")) for seed in range(seeds))
    problems = cell_problems(seeds_as_one(rows))
    summary = summarize_problems(problems)
    table = comparisons.as_published(published_differences(problems), summary)
    assert table is not None
    shown = table.frame.select("budget", "accuracy (%)", "as published (%)", "difference", "problems", "trajectories")
    assert [tuple(value if isinstance(value, str) else round(value, 9) for value in row) for row in shown.rows()] == [
        ("16+32", 50.0, 30.0, -20.0, 10, 40 * seeds),
        ("64+32", 50.0, 60.0, 10.0, 10, 40 * seeds),
    ], "and nothing of a cell with a response that is not graded so"
    assert (table.frame["difference low"] < table.frame["difference"]).all()
    assert (table.frame["difference high"] > table.frame["difference"]).all()
    assert summary["published_avg_at_k"].to_list() == [0.3, pytest.approx(0.6), None]
    assert summary["avg_at_k"].to_list() == [0.5] * 3, "the numbers of everything else are ours"
    nowhere = cell_problems(rows.with_columns(published_score=pl.lit(None, pl.Float64)))
    assert comparisons.as_published(published_differences(nowhere), summarize_problems(nowhere)) is None


def test_the_advice_is_the_cheapest_budget_that_holds_with_its_cost_and_its_tail() -> None:
    rows = make_rows(strategies=["separate", "unconstrained"], budgets=[16, 48], num_problems=300).with_columns(
        score=pl.lit(0.9)
    )
    problems = advisable(rows)
    found = budget_advice(problems)
    chosen = advised_budgets(found, choose_budgets(found, problems))
    costs = cell_costs(report_rows(rows.lazy()).collect(), TOKENS)
    table = budget_tables.advice(chosen, costs, "tokens processed")
    assert table is not None and "certified" in table.frame["within 2 points"]
    assert table.frame["within 2 points"].to_list() == chosen["verdict"].to_list()
    assert table.frame["tokens processed"].to_list() == chosen["cost"].to_list()
    needed = chosen["problems_needed"].cast(pl.Int64)
    assert table.frame["problems that would decide"].to_list() == needed.to_list()
    assert (table.frame["tokens processed, p95"] >= table.frame["tokens processed"]).all()
    assert budget_tables.advice(chosen.clear(), costs, "tokens processed") is None


def test_costs_have_a_mean_and_a_tail_under_every_model(rows: pl.DataFrame, summary: pl.DataFrame) -> None:
    parameters = ReportParameters(prices=CostModel(0.5, 0.05, 2.5))
    measured = {"trained@1": CostModel(0.001, 0, 0.01, 0.2), "trained@2": CostModel(1)}
    models = cost_tables.cost_models(parameters, measured, rows["model"].unique())
    table = cost_tables.costs(summary, models, cost_tables.costs_by_unit(report_rows(rows.lazy()).collect(), models))
    work = table.frame.select("input", "cached input", "output")
    expected = 0.5 * work["input"] + 0.05 * work["cached input"] + 2.5 * work["output"]
    assert table.frame["cost per million responses"].to_list() == pytest.approx(expected.to_list())
    assert table.frame["tokens processed"].mean() < table.frame["tokens processed, p95"].mean()
    ours = table.frame.filter(model="trained")
    alone = 1 * ours["input"] + 10 * ours["output"] + 200 * ours["turns"]
    assert ours["milliseconds alone on its engine"].to_list() == pytest.approx(alone.to_list())
    assert table.frame.filter(model="base")["milliseconds alone on its engine"].null_count() == ours.height
    assert "2.5 per output token" in table.caption


def test_every_published_number_is_complete_and_stands_there_once() -> None:
    rows = everything()
    assert rows.schema == PUBLISHED and rows.height == 325
    for column in ("family", "model", "benchmark", "metric", "value", "source", "place"):
        assert rows[column].null_count() == 0
    assert not rows.is_duplicated().any()
    stated = ["model", "benchmark", "metric", "think_budget", "solution_budget", "source", "place"]
    assert not rows.filter(pl.col("tokens").is_null()).select("family", *stated).is_duplicated().any()
    assert set(rows["metric"]) == {*ACCURACY, "rating", "percentile"}
    shares = rows.filter(pl.col("metric") != "rating")
    assert shares["value"].is_between(0, 100).all()
    budgets = set(rows["think_budget"].drop_nulls()) | set(rows["solution_budget"].drop_nulls())
    assert all(budget == "unlimited" or budget.isdigit() for budget in budgets)


def test_what_a_model_card_says_is_not_what_the_paper_says() -> None:
    rows = everything().filter(benchmark="aime-2024", model="E1-Math-1.5B")
    card = rows.filter(source="Salesforce/E1-Math-1.5B, model card")
    assert card.select("tokens", "value").rows() == [
        (6825, 35.0), (1340, 13.5), (1799, 17.5), (2650, 24.8), (3377, 27.9),
    ]  # fmt: skip
    assert card["think_budget"].null_count() == 5, "it tells tokens and no budgets"
    assert rows.filter(source="Elastic Reasoning, arXiv 2505.05315")["think_budget"].null_count() == 0


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["base", "evaluate-e1-math-1.5b"], {"E1-Math-1.5B"}),
        (["ablation-e1-math-1.5b"], {"E1-Math-1.5B"}),
        (["base", "L1-Exact-1.5B"], {"E1-Math-1.5B"}),
        (["reasonflux-f1-7b"], {"ReasonFlux-F1-7B"}),
        (["base", "mine", "embedded", "base>mine"], set()),
    ],
)
def test_only_models_related_to_a_report_are_shown(names: list[str], shown: set[str]) -> None:
    assert set(published(everything()["benchmark"].unique(), names)["family"]) == shown
    assert published(["miniature-easy"], names).is_empty(), "of a benchmark of one's own nothing is"
