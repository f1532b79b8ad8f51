"""The comparison that a sweep prints: which tables, which lines, and what stands in them."""

import polars as pl
import pytest

from reports.comparison import render_comparison
from tests.unit.test_report_summary import make_rows


def lines_of(text: str, title: str) -> list[list[str]]:
    """The cells of the table under `title`: its header and its lines, columns two spaces or more apart."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith(title))
    next(lines)
    table = []
    for line in lines:
        if not line:
            break
        table.append([cell.strip() for cell in line.split("  ") if cell.strip()])
    return [line for line in table if "─" not in line[0]]


@pytest.fixture(scope="module")
def text() -> str:
    return render_comparison(make_rows())


def test_a_line_per_budget_with_every_model_and_their_difference(text: str) -> None:
    header, *lines = lines_of(text, "hard, separate: accuracy and tokens")
    assert header == ["budget", "base", "tokens", "trained", "tokens", "trained − base", "n"]
    assert [line[0] for line in lines] == [f"{t}+32" for t in (0, 16, 32, 48, 64, 96, 128, 192)]
    assert all(line[-1] == "20 × 4" for line in lines)
    (free,) = lines_of(text, "easy, unconstrained")[1:]
    assert free[0] == "unlimited"


def test_strategies_are_held_against_vanilla_at_equal_budget(text: str) -> None:
    header, *lines = lines_of(text, "hard, trained: accuracy minus that of vanilla")
    assert header == ["budget", "budget forcing − vanilla", "separate − vanilla"]
    assert len(lines) == 8


def test_every_curve_has_its_area_and_law(text: str) -> None:
    header, *lines = lines_of(text, "easy: accuracy over log2 tokens")
    assert header == [
        "model", "strategy", "cells", "tokens", "anytime", "− vanilla, at equal tokens",
        "− base, at equal tokens", "slope", "R²", "fit", "n",
    ]  # fmt: skip
    assert [line[:2] for line in lines] == [
        [model, strategy] for model in ("base", "trained") for strategy in ("vanilla", "budget forcing", "separate")
    ]


def test_intervals_that_exclude_zero_are_marked_and_others_are_not() -> None:
    rows = make_rows(benchmarks=["hard"], strategies=["separate"], budgets=[0, 64], num_problems=40)
    nothing, much = lines_of(render_comparison(rows), "hard, separate")[1:]
    assert "]* (40)" in " ".join(much)
    assert "]*" not in " ".join(nothing)


def test_one_model_and_one_cell_have_nothing_to_be_compared_with() -> None:
    rows = make_rows(models=["base"], benchmarks=["easy"], strategies=["unconstrained"], num_problems=1)
    text = render_comparison(rows)
    (header, line) = lines_of(text, "easy, unconstrained")
    assert header == ["budget", "base", "tokens", "n"]
    assert line[2].endswith("± ∞")
    assert "easy: accuracy over log2" not in text


def test_without_base_and_vanilla_the_first_by_name_are_the_baselines() -> None:
    rows = make_rows(models=["b", "a"], benchmarks=["easy"], strategies=["separate", "budget_forcing"], num_problems=3)
    text = render_comparison(rows)
    assert "b − a" in text
    assert "separate − budget forcing" in text
    assert "easy, a: accuracy minus that of budget forcing\n" in text  # wider than its table, and on one line


def test_the_length_error_stands_only_with_strategies_that_ask_for_a_length() -> None:
    rows = make_rows(benchmarks=["hard"], strategies=["separate", "l1_exact"], budgets=[16, 64], num_problems=5)
    rows = rows.with_columns(think_tokens=pl.when(pl.col("strategy") == "l1_exact").then(100).otherwise("think_tokens"))
    text = render_comparison(rows)
    assert "error" not in lines_of(text, "hard, separate")[0]
    header, short, _ = lines_of(text, "hard, l1 exact")
    assert header == ["budget", "base", "tokens", "error", "trained", "tokens", "error", "trained − base", "n"]
    asked = rows.filter(model="base", strategy="l1_exact", think_budget=16)
    error = asked["think_tokens"].mean() + asked["solution_tokens"].mean() - 48
    assert short[3].startswith(f"{error:+.1f} [")


def test_a_cell_that_one_model_lacks_is_left_empty() -> None:
    rows = make_rows(benchmarks=["easy"], strategies=["separate"], budgets=[16, 64], num_problems=3)
    some = rows.filter((pl.col("model") == "base") | (pl.col("think_budget") == 16))
    full, partial = lines_of(render_comparison(some), "easy, separate")[1:]
    assert len(full) > len(partial)


def test_the_order_of_rows_changes_nothing(text: str) -> None:
    assert render_comparison(make_rows().sample(fraction=1, shuffle=True, seed=1)) == text


def test_names_with_brackets_are_not_taken_for_markup() -> None:
    rows = make_rows(models=["base", "[red]x[/red]"], benchmarks=["easy"], strategies=["separate"], budgets=[16])
    assert "[red]x[/red] − base" in render_comparison(rows)


def test_a_model_without_answers_is_told_at_the_end() -> None:
    rows = make_rows(benchmarks=["easy"], strategies=["separate"], budgets=[192], num_problems=3)
    assert "holds an answer" not in render_comparison(rows)
    silent = pl.when(pl.col("model") == "base").then(pl.lit("no_answer")).otherwise("grade_status")
    last = render_comparison(rows.with_columns(grade_status=silent)).splitlines()[-1]
    assert last.startswith("None of the 12 responses of base")
