"""The comparison that a sweep prints: which lines, and what stands in them."""

import re

import polars as pl
import pytest

from reports.comparison import render_comparison
from tests.tables import graded_twice
from tests.unit.test_report_summary import make_rows

Lines = list[dict[str, str]]


def lines_of(text: str, title: str) -> Lines:
    """The lines of the table under `title`, by the names of its columns: places two spaces or more apart."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith(title))
    next(lines)
    header = next(lines)
    next(lines)
    # Texts begin where the name of their column begins, and numbers end where it ends.
    names = [(match[0], match.start(), match.end()) for match in re.finditer(r"\S+( \S+)*", header)]
    table = []
    for line in lines:
        if not line:
            break
        places = [(match[0], match.start(), match.end()) for match in re.finditer(r"\S+( \S+)*", line)]
        table.append({name: _at(places, start, end) for name, start, end in names})
    return table


def _at(places: list[tuple[str, int, int]], start: int, end: int) -> str:
    return next((text for text, first, last in places if first == start or last in (end, end - 1)), "")


@pytest.fixture(scope="module")
def text() -> str:
    return render_comparison(make_rows())


def test_a_line_per_cell_with_its_differences_and_their_counts(text: str) -> None:
    lines = [line for line in lines_of(text, "hard: cells") if line["strategy"] == "separate"]
    assert [line["budget"] for line in lines[::2]] == [f"{t}+32" for t in (0, 16, 32, 48, 64, 96, 128, 192)]
    assert [line["model"] for line in lines] == ["base", "trained"] * 8
    assert all(line["problems × samples"] == "20 × 4" for line in lines)
    assert all((line["− base"] == "") == (line["model"] == "base") for line in lines)
    assert all("[" in line["− vanilla"] and line["− vanilla, n"] == "20" for line in lines)
    free = [line for line in lines_of(text, "easy: cells") if line["strategy"] == "unconstrained"]
    assert {line["budget"] for line in free} == {"unlimited"}


def test_every_curve_has_its_area_and_law(text: str) -> None:
    lines = lines_of(text, "easy: accuracy over log2 tokens")
    assert [(line["model"], line["strategy"]) for line in lines] == [
        (model, strategy) for model in ("base", "trained") for strategy in ("vanilla", "budget forcing", "separate")
    ]
    assert all("[" in line["anytime (%)"] and "[" in line["slope"] and line["R²"] and line["fit"] for line in lines)
    assert lines[0]["− base, at equal tokens"] == ""
    assert "[" in lines[-1]["− base, at equal tokens"] and "[" in lines[-1]["− vanilla, at equal tokens"]


def test_intervals_that_exclude_zero_are_marked_and_others_are_not() -> None:
    rows = make_rows(benchmarks=["hard"], strategies=["separate"], budgets=[0, 64], num_problems=40)
    _, nothing, _, much = lines_of(render_comparison(rows), "hard: cells")
    assert much["− base"].endswith("]*") and much["− base, n"] == "40"
    assert nothing["− base"].endswith("]")


def test_one_model_and_one_cell_have_nothing_to_be_compared_with() -> None:
    rows = make_rows(models=["base"], benchmarks=["easy"], strategies=["unconstrained"], num_problems=1)
    text = render_comparison(rows)
    (line,) = lines_of(text, "easy: cells")
    assert list(line) == ["strategy", "budget", "model", "accuracy (%)", "tokens", "problems × samples"]
    assert line["tokens"].endswith("[0.0, ∞]")
    assert "easy: accuracy over log2" not in text


def test_without_base_and_vanilla_the_first_by_name_are_the_baselines() -> None:
    rows = make_rows(models=["b", "a"], benchmarks=["easy"], strategies=["separate", "budget_forcing"], num_problems=3)
    assert {"− a", "− budget forcing"} < set(lines_of(render_comparison(rows), "easy: cells")[0])


def test_accuracy_as_published_is_a_column_where_there_is_any(text: str) -> None:
    assert "as published (%)" in render_comparison(graded_twice()) and "as published (%)" not in text


def test_the_length_error_stands_only_with_strategies_that_ask_for_a_length() -> None:
    rows = make_rows(benchmarks=["hard"], strategies=["separate", "l1_exact"], budgets=[16, 64], num_problems=5)
    rows = rows.with_columns(think_tokens=pl.when(pl.col("strategy") == "l1_exact").then(100).otherwise("think_tokens"))
    lines = lines_of(render_comparison(rows), "hard: cells")
    assert {line["strategy"] for line in lines if line["error"]} == {"l1 exact"}
    asked = rows.filter(model="base", strategy="l1_exact", think_budget=16)
    error = asked["think_tokens"].mean() + asked["solution_tokens"].mean() - 48
    assert lines[0]["error"].startswith(f"{error:+.1f} [")


def test_a_cell_that_one_model_lacks_is_left_out() -> None:
    rows = make_rows(benchmarks=["easy"], strategies=["separate"], budgets=[16, 64], num_problems=3)
    some = rows.filter((pl.col("model") == "base") | (pl.col("think_budget") == 16))
    assert len(lines_of(render_comparison(some), "easy: cells")) == 3


def test_the_order_of_rows_changes_nothing(text: str) -> None:
    assert render_comparison(make_rows().sample(fraction=1, shuffle=True, seed=1)) == text


def test_names_with_brackets_are_not_taken_for_markup() -> None:
    rows = make_rows(models=["base", "[red]x[/red]"], benchmarks=["easy"], strategies=["separate"], budgets=[16])
    assert "[red]x[/red]" in render_comparison(rows)


def test_a_model_without_answers_is_told_at_the_end() -> None:
    rows = make_rows(benchmarks=["easy"], strategies=["separate"], budgets=[192], num_problems=3)
    assert "holds an answer" not in render_comparison(rows)
    silent = pl.when(pl.col("model") == "base").then(pl.lit("no_answer")).otherwise("grade_status")
    last = render_comparison(rows.with_columns(grade_status=silent)).splitlines()[-1]
    assert last.startswith("None of the 12 responses of base")
