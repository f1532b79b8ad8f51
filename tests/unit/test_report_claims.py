"""Verdicts follow from the table, and from nothing else: each claim on tables made to pass, to fail, and to lack it."""

import polars as pl
import pytest

from elastic_core.budget import Budget
from reports.claims import (
    evaluate_claims,
    free_accuracy,
    free_tokens,
    gain_at_small_budgets,
    gain_on_both_sides,
    hardest_benchmark,
    rises_with_budget,
    separate_leads,
)
from reports.content import Claim
from tests.unit.test_report_summary import make_rows

BUDGETS = (16, 32, 64, 128, 256, 512)


def cells(rates: dict[tuple[str, str], list[float]], budgets: tuple[int | None, ...] = BUDGETS) -> pl.DataFrame:
    """40 problems × 5 samples per cell, of which the given share is right: (model, strategy) → a rate per budget.

    Problems that are right at a rate stay right at every higher one.
    """
    rows = [
        {
            "model": model,
            "benchmark": "hard",
            "strategy": strategy,
            "problem": f"{problem:02}",
            "sample": sample,
            "think_budget": t,
            "think_tokens": 100 if model == "base" else 60,
            "solution_tokens": 20,
            "score": float(problem < 40 * rate),
        }
        for (model, strategy), row in rates.items()
        for t, rate in zip(budgets, row, strict=True)
        for problem in range(40)
        for sample in range(5)
    ]
    return pl.DataFrame(rows, schema_overrides={"think_budget": pl.Int32})


def both(base: list[float], trained: list[float]) -> pl.DataFrame:
    return cells({("base", "separate"): base, ("trained", "separate"): trained})


def test_a_gain_must_be_large_and_clear_at_most_tight_and_middle_budgets() -> None:
    base = [0.0, 0.1, 0.2, 0.3, 0.5, 0.9]
    assert gain_at_small_budgets(both(base, [0.0, 0.5, 0.7, 0.8, 0.9, 0.9]), "hard").holds
    two_of_four = gain_at_small_budgets(both(base, [0.0, 0.1, 0.7, 0.8, 1.0, 1.0]), "hard")
    assert two_of_four.holds is False
    assert two_of_four.evidence.startswith("2 of 4 budgets")
    small_but_certain = gain_at_small_budgets(both([0.0] * 6, [0.1] * 6), "hard")
    assert small_but_certain.holds is False


def test_a_gain_is_shown_per_budget_with_its_interval_and_counts() -> None:
    claim = gain_at_small_budgets(both([0.1] * 6, [0.6] * 6), "hard")
    assert "t = 16: +50.0 [" in claim.evidence
    assert "t = 128: +50.0 [" in claim.evidence
    assert "t = 256" not in claim.evidence  # the last third is wide
    assert claim.evidence.endswith("(40 problems, 1600 trajectories compared)")


def test_gains_are_wanted_on_both_sides_of_the_trained_budget() -> None:
    base = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    everywhere = both(base, [0.5, 0.6, 0.8, 0.9, 0.9, 0.9])
    above = both(base, [0.1, 0.2, 0.8, 0.9, 0.9, 0.9])
    assert gain_on_both_sides(everywhere, "hard", Budget(64, 32)).holds
    assert gain_on_both_sides(above, "hard", Budget(64, 32)).holds is False


@pytest.mark.parametrize("budget", [None, Budget(None, None), Budget(16, 32), Budget(512, 32)])
def test_a_side_without_budgets_is_not_measured(budget: Budget | None) -> None:
    assert gain_on_both_sides(both([0.1] * 6, [0.9] * 6), "hard", budget).holds is None


def test_the_order_of_strategies_is_judged_at_tight_budgets() -> None:
    rates = {
        ("base", "separate"): [0.4, 0.6, 0.6, 0.6, 0.6, 0.6],
        ("base", "budget_forcing"): [0.2, 0.3, 0.9, 0.9, 0.9, 0.9],
        ("base", "vanilla"): [0.0, 0.0, 0.9, 0.9, 0.9, 0.9],
    }
    assert separate_leads(cells(rates), "hard").holds
    tied = rates | {("base", "vanilla"): rates["base", "budget_forcing"]}
    assert separate_leads(cells(tied), "hard").holds is False
    assert separate_leads(cells({("base", "separate"): [0.4] * 6}), "hard").holds is None


def test_free_accuracy_may_fall_by_five_points_and_no_more() -> None:
    def free(base: float, trained: float) -> Claim:
        rates = {("base", "unconstrained"): [base], ("trained", "unconstrained"): [trained]}
        return free_accuracy(cells(rates, budgets=(None,)), "hard")

    assert free(0.9, 1.0).holds
    assert free(0.9, 0.875).holds
    assert free(0.9, 0.825).holds is False


def test_free_tokens_must_fall_by_a_fifth() -> None:
    rates = {("base", "unconstrained"): [1.0], ("trained", "unconstrained"): [1.0]}
    rows = cells(rates, budgets=(None,))
    claim = free_tokens(rows, "hard")
    assert claim.holds
    assert claim.evidence.startswith("base 120.0, trained 80.0 tokens per response: -33.3 % [-33.3, -33.3]")
    alike = free_tokens(rows.with_columns(think_tokens=pl.lit(90)), "hard")
    assert alike.holds is False


def test_the_log_law_wants_a_rise_that_is_straight_in_log2() -> None:
    straight, flat, late = [0.1, 0.25, 0.4, 0.55, 0.7, 0.85], [0.5] * 6, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    claim = rises_with_budget(both(straight, straight), "hard")
    assert claim.holds
    assert "base +15.0 [" in claim.evidence
    assert "R² 1.00" in claim.evidence
    assert rises_with_budget(both(straight, flat), "hard").holds is False
    assert rises_with_budget(both(straight, late), "hard").holds is False
    assert rises_with_budget(cells({("base", "separate"): straight}), "hard").holds is None


def test_the_hardest_benchmark_is_where_the_base_model_scores_least() -> None:
    hard = cells({("base", "separate"): [0.1] * 6})
    easy = cells({("base", "separate"): [0.8] * 6}).with_columns(benchmark=pl.lit("easy"))
    assert hardest_benchmark(pl.concat([easy, hard])) == "hard"
    assert hardest_benchmark(hard.filter(model="trained")) is None


def test_every_benchmark_is_judged_and_a_lone_base_model_is_not_measured() -> None:
    claims = evaluate_claims(make_rows(), Budget(48, 32))
    assert [claim.benchmark for claim in claims] == ["easy"] * 5 + ["hard"] * 6
    assert all(claim.holds is not None for claim in claims)
    alone = evaluate_claims(make_rows(models=["base"]), Budget(48, 32))
    assert sum(claim.holds is None for claim in alone) == 9  # all but the order of the base's strategies
    assert all(claim.evidence.startswith("needs ") for claim in alone if claim.holds is None)
