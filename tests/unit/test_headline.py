"""The metrics that a report's and a pipeline's run are looked up for."""

import polars as pl
import pytest

from elastic_core.budget import TrainingBudget
from elastic_core.statistics.accuracy import paired_difference
from elastic_core.statistics.budgets import anytime_accuracy
from reports.content import Training
from reports.summary import cell_problems, headline, summarize_problems
from tests.unit.test_report_summary import make_rows

ROWS = make_rows(benchmarks=["easy"], num_problems=30, num_samples=2)


def training(budget: str) -> Training:
    return Training(TrainingBudget.parse(budget), False, "base", None)


def found(rows: pl.DataFrame, trainings: dict[str, Training]) -> dict[str, float]:
    problems = cell_problems(rows)
    return headline(problems, summarize_problems(problems), anytime_accuracy(problems), trainings)


def test_they_are_the_numbers_of_the_report() -> None:
    numbers, summary = found(ROWS, {"trained": training("48+32")}), summarize_problems(cell_problems(ROWS))
    ends = ("", "_low", "_high")
    for model in ("base", "trained"):
        (star,) = summary.filter(model=model, strategy="separate", think_budget=48).to_dicts()
        shown = [numbers[f"star/easy/{model}/separate{end}"] for end in ends]
        assert shown == [star["avg_at_k"], star["ci_low"], star["ci_high"]]
        (free,) = summary.filter(model=model, strategy="unconstrained").to_dicts()
        shown = [numbers[f"free_tokens/easy/{model}/unconstrained{end}"] for end in ends]
        assert shown == [free[f"tokens_mean{end}"] for end in ends]
        (anytime,) = anytime_accuracy(cell_problems(ROWS)).filter(model=model, strategy="separate").to_dicts()
        assert numbers[f"anytime/easy/{model}/separate"] == anytime["anytime"]
    separate = ROWS.filter(pl.col("think_budget").is_not_null(), strategy="separate")
    gain = paired_difference(separate.filter(model="trained"), separate.filter(model="base"))
    assert [numbers[f"gain/easy/trained/separate{end}"] for end in ends] == pytest.approx(gain[:3])
    assert "gain/easy/base/separate" not in numbers


@pytest.mark.parametrize(
    ("trainings", "expected"),
    [
        ({}, set()),
        ({"trained": training("16..48+32")}, set()),
        ({"trained": training("48+32"), "other": training("48+32")}, {"base", "trained"}),
        ({"trained": training("48+32"), "other": training("96+32")}, {"trained"}),
    ],
)
def test_without_one_trained_budget_there_is_no_accuracy_at_it(
    trainings: dict[str, Training], expected: set[str]
) -> None:
    stars = {name.split("/")[2] for name in found(ROWS, trainings) if name.startswith("star/")}
    assert stars == expected


def test_a_bound_that_is_infinite_is_no_metric() -> None:
    one = ROWS.filter(pl.col("problem") == "000")
    numbers = found(one, {})
    assert "free_tokens/easy/base/unconstrained" in numbers
    assert "free_tokens/easy/base/unconstrained_high" not in numbers, "nothing is known beyond one problem"
