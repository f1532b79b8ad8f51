"""The first screen: two sentences in words, and what to set, from the same numbers as the rest of the report."""

from dataclasses import replace

import polars as pl
import pytest

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.rewards.truth import guesses
from elastic_core.statistics.which_budget import choose_budgets
from reports.content import Setting
from reports.page import command
from reports.summary import cell_problems, summarize
from reports.verdict import brief, readable, settings
from reports.verdict import to_set as to_set_of
from tests.unit.test_report_summary import make_rows
from tests.unit.test_report_verdict import advice, scored


def found(rows: pl.DataFrame) -> str:
    return brief(cell_problems(rows), [], [])[0]


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [(0.75, 0.25, "more accurate by 50 points"), (0.25, 0.75, "less accurate by 50 points"), (0.5, 0.5, "neither")],
)
def test_the_first_sentence_says_what_was_found(ours: float, theirs: float, words: str) -> None:
    assert words in found(scored(ours, theirs))


def test_benchmarks_that_disagree_are_each_named() -> None:
    rows = pl.concat([scored(1.0, 0.0).filter(benchmark="easy"), scored(0.5, 0.5).filter(benchmark="hard")])
    assert "by 100 points on easy, neither on hard" in found(rows)


def test_of_many_benchmarks_the_sentence_counts() -> None:
    rows = scored(1, 0).filter(benchmark="easy")
    many = pl.concat([rows.with_columns(benchmark=pl.lit(f"b{number}")) for number in range(5)])
    assert "on 5 of 5 benchmarks, by 100 to 100 points" in found(many)


def test_of_many_models_none_is_named_as_the_best() -> None:
    rows = scored(1.0, 0.0)
    one = rows.filter(model="trained")
    many = [one.with_columns(model=pl.lit(name), score=pl.lit(score)) for name, score in (("m1", 1.0), ("m2", 0.0))]
    sentence = found(pl.concat([rows.filter(model="base"), *many]))
    assert sentence.startswith("Of 2 models") and "1 is more accurate" in sentence


def test_without_answers_it_says_that_nothing_can_be_read() -> None:
    rows = scored(0, 0).with_columns(grade_status=pl.lit("no_answer"))
    sentences = brief(cell_problems(rows), [], readable(rows))
    assert len(sentences) == 2 and sentences[0].startswith("Nothing can be read")


EVERYWHERE = make_rows(strategies=["separate", "unconstrained"], budgets=[48]).with_columns(score=pl.lit(0.9))
ROWS = EVERYWHERE.filter(benchmark="hard")
CELLS, PROBLEMS = summarize(ROWS), cell_problems(ROWS)


def to_set(found: pl.DataFrame) -> tuple[list[Setting], str]:
    chosen = settings(choose_budgets(found, PROBLEMS), found, CELLS, "trained", 0.02, "tokens processed")
    return chosen, brief(PROBLEMS, chosen, [])[1]


def test_what_to_set_is_the_cheapest_budget_that_a_server_keeps_and_that_is_shown_to_be_near() -> None:
    vanilla = advice(strategy="vanilla", cost=10.0)
    (setting,), sentence = to_set(pl.concat([vanilla, advice()]))
    assert str(setting.budget) == "48+32"
    assert all(fact in sentence for fact in ("trained", "48+32", "hard", "2 points below"))
    assert command(setting, "embedded", {}) == "elastic serve --preset embedded --model trained --budget 48+32"
    elsewhere = {"trained": "ME/model"}
    assert command(setting, "evaluate", elsewhere).endswith("--preset evaluate --model ME/model --budget 48+32")
    assert command(setting, "evaluate", {"trained": "http://host:8000/v1#model"}) == "", "it is served already"
    cell = CELLS.filter(model="trained", strategy="separate").row(0, named=True)
    assert setting.told.startswith(f"{100 * cell['avg_at_k']:.1f} [")
    assert "-0.4 [-1.5, +0.7] points from unlimited, certified to be at most 1.5 below" in setting.told
    assert "tokens processed 93, 28 [25, 31] %" in setting.told and "(20 problems × 4 samples)" in setting.told


@pytest.mark.parametrize("columns", [{"verdict": "undecided"}, {"saved_low": -0.01}, {"strategy": "vanilla"}])
def test_where_nothing_is_shown_nothing_is_set(columns: dict[str, object]) -> None:
    (setting,), sentence = to_set(advice(**columns))
    assert setting.budget is None and command(setting, "", {}) == ""
    assert setting.reason in sentence or "strategy" in columns
    assert not sentence.startswith("Serve")


def test_a_budget_for_one_benchmark_is_not_offered_for_another() -> None:
    rows = EVERYWHERE
    found = pl.concat([advice(), advice(benchmark="easy", verdict="fails")])
    chosen = settings(
        choose_budgets(found, cell_problems(rows)), found, summarize(rows), "trained", 0.02, "tokens processed"
    )
    assert [each.budget is None for each in chosen] == [True, False]
    sentence = brief(cell_problems(rows), chosen, [])[1]
    assert "48+32 for tasks like hard" in sentence
    assert sentence.endswith("; for easy none is advised. On easy leave thinking unlimited.")


@pytest.mark.parametrize(
    ("needed", "decides"),
    [(109.0, "about 109 problems would decide it, 100 were measured."), (None, "no number of problems like these")],
)
def test_a_refusal_names_the_nearest_budget_and_what_would_decide_it(needed: float | None, decides: str) -> None:
    (setting,), sentence = to_set(advice(verdict="undecided", problems_needed=needed))
    assert sentence.startswith("No token budget of trained is advised")
    assert "On hard the nearest is 48+32, -0.4 [-1.5, +0.7] points from unlimited and 28 % cheaper" in sentence
    assert decides in sentence and decides.rstrip(".") in setting.instead


def test_what_a_context_cut_on_one_benchmark_is_not_said_of_another() -> None:
    cut = "thinking without a budget, 1 % of it cut at 4,096 tokens"
    hard, easy = (Setting(name, "trained", "2 points", budget=Budget(48, 32)) for name in ("hard", "easy"))
    assert to_set_of([replace(hard, unlimited=cut), replace(easy, unlimited=cut)]).endswith(f"below {cut}.")
    assert to_set_of([replace(hard, unlimited=cut), easy]).endswith("without a budget, some of which was cut.")


def test_without_responses_without_a_limit_it_says_what_to_measure() -> None:
    sentence = to_set(advice().clear())[1]
    assert "cannot be said" in sentence and "separate and unconstrained" in sentence


def test_guessing_is_one_of_the_options_of_a_multiple_choice() -> None:
    asked = [Problem("gpqa", "1", "?", "A", "choice"), Problem("aime", "1", "?", "7", "math")]
    assert guesses(asked) == {"gpqa": 0.25, "aime": 0.0}
