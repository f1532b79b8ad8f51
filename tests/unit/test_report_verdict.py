"""The sentence at the top: it says what the paired differences say; and how much of a sweep is there."""

import re

import polars as pl

from elastic_core.budget import Budget
from elastic_core.statistics.accuracy import paired_difference
from elastic_core.statistics.estimates import seeds_as_one
from elastic_core.sweep.grid import build_cells
from reports.content import Asked, Claim, Verdict
from reports.summary import cell_problems
from reports.verdict import brief, coverage, cut_short, more_tokens_hurt, not_told, readable, verdict
from tests.unit.test_report_summary import make_rows


def scored(ours: float, theirs: float) -> pl.DataFrame:
    """`trained` and `base` under separate budgeting, each with one score throughout."""
    rows = make_rows(strategies=["separate"], budgets=[16, 64], num_problems=40)
    return rows.with_columns(score=pl.when(pl.col("model") == "trained").then(ours).otherwise(theirs))


def said(rows: pl.DataFrame, claims: list[Claim] | None = None) -> str:
    return verdict(cell_problems(rows), claims or [])


def test_its_numbers_are_those_of_the_paired_difference() -> None:
    rows = make_rows(benchmarks=["hard"], strategies=["separate"], budgets=[48], num_problems=30)
    difference = paired_difference(rows.filter(model="trained"), rows.filter(model="base"))
    estimate = f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
    assert f"hard {estimate}" in said(rows)
    assert "(30 problems, 1 budget)" in said(rows)


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
    assert "E1 is, compared with base, more accurate" in brief(cell_problems(other), [])[0]
    alone = make_rows(models=["base"], benchmarks=["hard"], num_problems=10)
    assert "over vanilla truncation of base" in said(alone)
    assert "instead of cutting the response off" in brief(cell_problems(alone), [])[0]


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
    return verdict(cell_problems(rows), [], readable(rows))


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
    assert brief(cell_problems(cut), [], readable(cut))[0].startswith("No difference can be read")
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
