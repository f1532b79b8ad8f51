"""The sentence at the top: it says what the paired differences say; and how much of a sweep is there."""

import re
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest

from elastic_core.budget import Budget, TrainingBudget
from elastic_core.data.problems import Problem
from elastic_core.rewards.truth import guesses
from elastic_core.statistics.accuracy import paired_difference, paired_differences
from elastic_core.statistics.estimates import seeds_as_one
from elastic_core.statistics.which_budget import advised_budgets, choose_budgets
from elastic_core.sweep.grid import build_cells
from elastic_core.sweep.table import Manifest
from reports.content import Asked, Claim, ReportSources, Setting, Training, Verdict
from reports.summary import cell_problems, summarize
from reports.verdict import (
    Readable,
    command,
    coverage,
    cut_short,
    more_tokens_hurt,
    not_told,
    pairs_of,
    readable,
    settings,
    told_an_effort,
)
from reports.verdict import brief as brief_of
from reports.verdict import to_set as to_set_of
from reports.verdict import verdict as verdict_of
from reports.wording import plural, sampled, with_bounds
from tests.unit.test_report_summary import make_rows


def scored(ours: float, theirs: float) -> pl.DataFrame:
    """`trained` and `base` under separate budgeting, each with one score throughout."""
    rows = make_rows(strategies=["separate"], budgets=[16, 64], num_problems=40)
    return rows.with_columns(score=pl.when(pl.col("model") == "trained").then(ours).otherwise(theirs))


def said(rows: pl.DataFrame, claims: Sequence[Claim] = (), responses: Sequence[Readable] = ()) -> str:
    problems = cell_problems(rows)
    return verdict_of(problems, pairs_of(problems), claims, responses)


def brief(rows: pl.DataFrame, chosen: Sequence[Setting] = (), responses: Sequence[Readable] = ()) -> list[str]:
    problems = cell_problems(rows)
    return brief_of(problems, pairs_of(problems), chosen, responses)


def test_its_numbers_are_those_of_the_paired_difference() -> None:
    rows = make_rows(benchmarks=["hard"], strategies=["separate"], budgets=[48], num_problems=30)
    difference = paired_difference(rows.filter(model="trained"), rows.filter(model="base"))
    estimate = f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
    assert f"hard {estimate}" in said(rows)
    assert "(30 problems, 1 budget)" in said(rows)


def test_one_of_a_thing_is_not_many_and_an_infinite_bound_is_a_sign() -> None:
    one = make_rows(benchmarks=["hard"], strategies=["unconstrained"], num_problems=1, num_samples=1)
    assert sampled(summarize(one)) == "1 problem × 1 sample" and plural("3 to 5", "problem") == "3 to 5 problems"
    assert with_bounds(0.5, None, float("inf")) == "50.0 [−∞, ∞]"


def test_only_problems_and_budgets_that_both_have_are_compared() -> None:
    rows = scored(1, 0).filter(benchmark="easy")
    more = rows.filter((pl.col("model") == "base") | ((pl.col("problem") < "010") & (pl.col("think_budget") == 16)))
    assert "easy +100.0" in said(more)
    assert "(10 problems, 1 budget)" in said(more)


def test_it_says_how_many_seeds_of_training_it_rests_on() -> None:
    one = scored(1, 0)
    assert "trained over base, one seed of training, paired" in said(one)
    again = [one.filter(model="trained").with_columns(model=pl.lit(f"trained@{seed}")) for seed in (1, 2, 3)]
    three = seeds_as_one(pl.concat([one.filter(model="base"), *again]))
    assert "trained over base, 3 seeds of training, paired" in said(three)
    assert said(three).replace("3 seeds", "one seed").split("[")[0] == said(one).split("[")[0]


def test_another_model_is_held_against_base_by_name_and_without_models_separate_against_vanilla() -> None:
    other = scored(1, 0).with_columns(model=pl.col("model").replace("trained", "E1"))
    assert "E1 over base" in said(other)
    assert "E1 is, compared with base, more accurate" in brief(other)[0]
    alone = make_rows(models=["base"], benchmarks=["hard"], num_problems=10)
    assert "over vanilla truncation of base" in said(alone)
    assert "instead of cutting the response off" in brief(alone)[0]


def test_of_several_models_the_least_and_the_greatest_difference_are_told() -> None:
    rows = scored(0.5, 0)
    named = [
        rows.filter(model="base"),
        *(
            rows.filter(model="trained").with_columns(model=pl.lit(name), score=pl.lit(score))
            for name, score in {"t24": 0.25, "t48": 1.0, "drawn": 0.5}.items()
        ),
    ]
    sentence = said(pl.concat(named))
    assert re.search(r"^.*3 models .*easy from \+25\.0 \[\S+ \S+ \(t24\) to \+100\.0 \[\S+ \S+ \(t48\) ", sentence)
    assert "drawn" not in sentence


def test_with_nothing_to_compare_it_says_so_and_counts_what_holds() -> None:
    rows = make_rows(models=["base"], benchmarks=["hard"], strategies=["unconstrained"], num_problems=2)
    claims = [Claim("hard", "", verdict, "") for verdict in Verdict]
    each = "holds 1, holds as measured 1, not refuted 1, undecided 1, does not hold 1, not measured 1"
    assert said(rows, claims).endswith(f" Expectations by verdict: {each}.")


def test_what_was_not_answered_is_counted_by_kind() -> None:
    kinds = pl.DataFrame({"kind": ["answered", "cut in the solution", "answered", "went on thinking"] * 600})
    (sentence,) = cut_short(kinds)
    assert re.search(r"2,400 .*1,200 .*600 went on thinking, 600 cut in the solution", sentence)
    assert cut_short(kinds.filter(kind="answered")) == []


def read(rows: pl.DataFrame) -> str:
    return said(rows, responses=readable(rows))


def test_without_any_answer_nothing_is_compared() -> None:
    rows = scored(0, 0).with_columns(grade_status=pl.lit("no_answer"))
    sentence = read(rows)
    assert re.match(r"Nothing .*640 responses of base .*of trained ", sentence)


def test_one_model_that_never_answers_is_told_beside_the_comparison() -> None:
    silent = pl.when(pl.col("model") == "base").then(pl.lit("no_answer")).otherwise(pl.lit("correct"))
    sentence = read(scored(1, 0).with_columns(grade_status=silent))
    assert "easy +100.0 [" in sentence and "responses of base" in sentence and "responses of trained" not in sentence


def test_without_a_closed_thought_no_difference_is_not_called_one() -> None:
    cut = scored(0.5, 0.5).with_columns(think_finish=pl.lit("forced"))
    assert brief(cut, responses=readable(cut))[0].startswith("No difference can be read")
    assert read(scored(0.5, 0.5)) == said(scored(0.5, 0.5)), "nothing is added where all is well"


def test_coverage_counts_what_was_asked_for_and_no_more() -> None:
    cells = build_cells(["base"], ["easy", "hard"], ["separate", "unconstrained"], [Budget(16, 32), Budget(64, 32)])
    asked = Asked(cells, {"easy": 10, "hard": 10}, num_samples=4)
    table = {"models": ["base"], "strategies": ["separate", "unconstrained"], "budgets": [16, 64], "num_problems": 10}
    whole = make_rows(**table)
    assert coverage(whole, asked) == "The sweep is complete: 240 trajectories in 6 cells."
    large = pl.col("think_budget").eq_missing(64)
    begun = whole.filter(~large | (pl.col("problem") < "005"), benchmark="easy", strategy="separate")
    assert re.search(r"not complete: 60 of 240 .*\(25 %\).* 1 of 6 cells .* 4 are empty", coverage(begun, asked))
    beyond = make_rows(**{**table, "num_samples": 8})
    assert coverage(beyond, asked).startswith("The sweep is complete: 240 ")


def test_coverage_counts_the_samples_that_each_benchmark_was_asked_for() -> None:
    cells = build_cells(["base"], ["easy", "hard"], ["separate"], [Budget(16, 32)])
    table = {"models": ["base"], "strategies": ["separate"], "budgets": [16], "num_problems": 10}
    rows = make_rows(**table)
    asked = Asked(cells, {"easy": 10, "hard": 10}, num_samples={"easy": 1, "default": 4})
    assert coverage(rows, asked) == "The sweep is complete: 50 trajectories in 2 cells."
    more = Asked(cells, {"easy": 10, "hard": 10}, num_samples={"hard": 1, "easy": 5})
    assert re.search(r"not complete: 50 of 60 ", coverage(rows, more))


def test_more_samples_of_fewer_problems_are_not_taken_for_the_rest() -> None:
    cells = build_cells(["base"], ["easy"], ["separate"], [Budget(16, 32)])
    table = {"models": ["base"], "benchmarks": ["easy"], "strategies": ["separate"], "budgets": [16]}
    asked = Asked(cells, {"easy": 20}, num_samples=4, chosen=True)
    told = coverage(make_rows(**table, num_problems=10, num_samples=8), asked)
    assert re.search(r"not complete: 40 of 80 .*\(50 %\).* 0 of 1 cells .* 0 are empty\..* 20 of easy\.$", told)


def advice(**columns: object) -> pl.DataFrame:
    """One budget of the trained model held against its unconstrained responses, as `budget_advice` has it."""
    row = {
        "model": "trained",
        "benchmark": "hard",
        "strategy": "separate",
        "think_budget": 48,
        "solution_budget": 32,
        "cost": 93.4,
        "free_cost": 130.0,
        "saved": 0.28,
        "saved_low": 0.25,
        "saved_high": 0.31,
        "difference": -0.004,
        "low": -0.015,
        "high": 0.007,
        "margin": 0.02,
        "within": 0.0149,
        "verdict": "certified",
        "free_cut": 0.0,
        "free_cap": None,
        "problems_needed": None,
        "num_problems": 100,
        "num_trajectories": 1600,
    }
    return pl.DataFrame([row | columns])


def test_how_many_budgets_are_undecided_is_counted() -> None:
    cheaper = advice(think_budget=32, cost=70.0, low=-0.05, verdict="undecided", problems_needed=640.0)
    (sentence,) = not_told(pl.concat([cheaper, advice().cast(cheaper.schema)]), "trained")
    assert "1 of the 2 budgets of trained are undecided" in sentence
    assert not_told(advice().clear(), "trained") == []


def test_the_deepest_fall_is_told_first_and_the_others_counted() -> None:
    keys = {"model": "base", "benchmark": "easy", "strategy": "separate", "solution_budget": 32}
    falls = pl.DataFrame(
        [
            keys | {"think_budget": 0, "next_budget": 48, "difference": -0.348, "low": -0.41, "high": -0.28},
            keys | {"think_budget": 16, "next_budget": 32, "difference": -0.2, "low": -0.3, "high": -0.1},
        ]
    ).with_columns(num_problems=100, num_trajectories=1600)
    (sentence,) = more_tokens_hurt(falls)
    assert re.search(r"base on easy .*34\.8 \[28\.0, 41\.0\] .*t = 0 to t = 48.* 1 other ", sentence)
    assert more_tokens_hurt(falls.clear()) == []


def test_an_effort_that_needs_fewer_tokens_is_named_with_what_it_loses() -> None:
    """With low it writes half a thought and is right as often, with high a longer one."""
    free = make_rows(["base"], strategies=["unconstrained"])
    told = [
        free.with_columns(strategy=pl.lit(f"unconstrained_effort-{effort}"), think_tokens=tokens)
        for effort, tokens in (("low", pl.col("think_tokens") // 2), ("high", pl.col("think_tokens") + 9))
    ]

    def said(*parts: pl.DataFrame) -> list[str]:
        rows = pl.concat([free, *parts])
        return told_an_effort(paired_differences(rows, "strategy", "unconstrained"), summarize(rows), "base")

    (sentence,) = said(*told)
    assert sentence.startswith("Told low, base without a budget samples 4") and " points on easy and " in sentence
    assert said() == said(told[1]) == []


def trained_with(equal: list[float]) -> Training:
    """Eight groups a step, so many of them with equal rewards."""
    points = [
        row
        for step, value in enumerate(equal, 1)
        for row in ((step, "rollout/groups", 8.0), (step, "rollout/groups_without_variance", value))
    ]
    metrics = pl.DataFrame(points, schema=["step", "name", "value"], orient="row")
    return Training(TrainingBudget.parse("48+32"), asks_length=False, base="base", metrics=metrics)


@pytest.mark.parametrize("equal", [[], [8, 0], [7, 7, 7], [8, 7, 0]])
def test_a_training_that_learned_in_half_of_its_steps_needs_no_remark(equal: list[float]) -> None:
    assert trained_with(equal).idle("trained") == ""


def test_idle_steps_are_counted() -> None:
    assert trained_with([8, 8, 3]).idle("trained").startswith("In 2 of 3 training steps of trained ")


def test_without_a_record_nothing_is_said() -> None:
    assert Training(TrainingBudget.parse("48+32"), asks_length=False, base=None, metrics=None).idle("trained") == ""


def first_sentence(rows: pl.DataFrame) -> str:
    return brief(rows)[0]


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [(0.75, 0.25, "more accurate by 50 points"), (0.25, 0.75, "less accurate by 50 points"), (0.5, 0.5, "neither")],
)
def test_the_first_sentence_says_what_was_found(ours: float, theirs: float, words: str) -> None:
    assert words in first_sentence(scored(ours, theirs))


def test_benchmarks_that_disagree_are_each_named() -> None:
    rows = pl.concat([scored(1.0, 0.0).filter(benchmark="easy"), scored(0.5, 0.5).filter(benchmark="hard")])
    assert "by 100 points on easy, neither on hard" in first_sentence(rows)


def test_of_many_benchmarks_the_sentence_counts() -> None:
    rows = scored(1, 0).filter(benchmark="easy")
    many = pl.concat([rows.with_columns(benchmark=pl.lit(f"b{number}")) for number in range(5)])
    assert "on 5 of 5 benchmarks, by 100 to 100 points" in first_sentence(many)


def test_of_many_models_none_is_named_as_the_best() -> None:
    rows = scored(1.0, 0.0)
    one = rows.filter(model="trained")
    many = [one.with_columns(model=pl.lit(name), score=pl.lit(score)) for name, score in (("m1", 1.0), ("m2", 0.0))]
    sentence = first_sentence(pl.concat([rows.filter(model="base"), *many]))
    assert sentence.startswith("Of 2 models") and "1 is more accurate" in sentence


def test_without_answers_it_says_that_nothing_can_be_read() -> None:
    rows = scored(0, 0).with_columns(grade_status=pl.lit("no_answer"))
    sentences = brief(rows, responses=readable(rows))
    assert len(sentences) == 2 and sentences[0].startswith("Nothing can be read")


def of(preset: str, place: str | None = None) -> ReportSources:
    return ReportSources(pl.LazyFrame(), preset=preset, places={} if place is None else {"trained": place})


EVERYWHERE = make_rows(strategies=["separate", "unconstrained"], budgets=[48]).with_columns(score=pl.lit(0.9))
ROWS = EVERYWHERE.filter(benchmark="hard")
CELLS = summarize(ROWS)


def to_set(found: pl.DataFrame) -> tuple[list[Setting], str]:
    return settings_of(found, ROWS)


def settings_of(found: pl.DataFrame, rows: pl.DataFrame) -> tuple[list[Setting], str]:
    problems = cell_problems(rows)
    choices = choose_budgets(found, problems)
    advised = advised_budgets(found, choices)
    chosen = settings(choices, found, advised, summarize(rows), "trained", 0.02, "tokens processed")
    return chosen, brief(rows, chosen)[1]


def test_what_to_set_is_the_cheapest_budget_that_a_server_keeps_and_that_is_shown_to_be_near() -> None:
    vanilla = advice(strategy="vanilla", cost=10.0)
    (setting,), sentence = to_set(pl.concat([vanilla, advice()]))
    assert str(setting.budget) == "48+32"
    assert all(fact in sentence for fact in ("trained", "48+32", "hard", "2 points below"))
    assert command(setting, of("embedded")) == "elastic serve --preset embedded --model trained --budget 48+32"
    assert command(setting, of("evaluate", "ME/model")).endswith("--preset evaluate --model ME/model --budget 48+32")
    assert command(setting, of("evaluate", "http://host:8000/v1#model")) == "", "it is served already"
    own = replace(of("mine"), provenance={"preset": "my presets/mine.toml"})
    assert command(setting, own).startswith("elastic serve --preset 'my presets/mine.toml'")
    behind = replace(of("smoke"), manifest=Manifest({}, {}, {}, {}, servers={"trained": {}}))
    assert command(setting, behind) == "", "so the table says, whatever the settings are that the report is made with"
    cell = CELLS.filter(model="trained", strategy="separate").row(0, named=True)
    assert setting.told.startswith(f"{100 * cell['avg_at_k']:.1f} [")
    assert "-0.4 [-1.5, +0.7] points from unlimited, certified to be at most 1.5 below" in setting.told
    assert "tokens processed 93, 28 [25, 31] %" in setting.told and "(20 problems × 4 samples)" in setting.told


@pytest.mark.parametrize("columns", [{"verdict": "undecided"}, {"saved_low": -0.01}, {"strategy": "vanilla"}])
def test_where_nothing_is_shown_nothing_is_set(columns: dict[str, object]) -> None:
    (setting,), sentence = to_set(advice(**columns))
    assert setting.budget is None and command(setting, of("")) == "elastic serve --model trained"
    assert setting.told in sentence or "strategy" in columns
    assert not sentence.startswith("Serve")


def test_a_budget_for_one_benchmark_is_not_offered_for_another() -> None:
    found = pl.concat([advice(), advice(benchmark="easy", verdict="fails")])
    chosen, sentence = settings_of(found, EVERYWHERE)
    assert [each.budget is None for each in chosen] == [True, False]
    assert "48+32 for tasks like hard" in sentence
    assert ". On easy leave thinking unlimited: " in sentence


@pytest.mark.parametrize(
    ("needed", "decides"),
    [(109, "about 109 problems would decide it, 100 were measured."), (None, "no number of problems like these")],
)
def test_a_refusal_names_the_nearest_budget_and_what_would_decide_it(needed: int | None, decides: str) -> None:
    (setting,), sentence = to_set(advice(verdict="undecided", problems_needed=needed))
    nearest = "the nearest budget is 48+32: -0.4 [-1.5, +0.7] points from unlimited thinking, 28 % cheaper"
    assert sentence.startswith(f"For trained, on hard {nearest}") and decides in sentence
    assert (str(setting.nearest), setting.needed) == ("48+32", needed) and setting.told in sentence


@pytest.mark.parametrize(
    ("benchmark", "chosen", "begun", "shown"),
    [
        ("miniature-easy", False, "", "elastic run sweep --preset p --set data.miniature.problems_per_benchmark=110"),
        (
            "words-hard",
            False,
            "elastic run pipeline --set sweep.samples=4",
            "elastic run pipeline --set sweep.samples=4 --set data.words.problems_per_benchmark=110",
        ),
        ("math500", True, "elastic report", "elastic run sweep --preset p --set sweep.problems=110"),
        ("aime-2024", False, "", "elastic serve --preset p --model trained"),
    ],
)
def test_what_would_decide_is_a_command_where_there_are_more_problems(
    benchmark: str, chosen: bool, begun: str, shown: str
) -> None:
    setting = Setting(benchmark, "trained", "2 points", nearest=Budget(48, 32), needed=109)
    sources = of("p")
    asked = Asked([], {}, 4, chosen)
    assert command(setting, replace(sources, asked=asked, provenance={"command": begun})) == shown


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
