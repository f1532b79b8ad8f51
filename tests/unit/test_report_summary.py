"""The cells of a trajectory table, and summary.json. `make_rows` makes the tables of the other report tests."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from elastic_core.budget import TrainingBudget
from elastic_core.statistics.accuracy import paired_difference
from elastic_core.statistics.budgets import anytime_accuracy
from elastic_core.trajectory import SCHEMA
from reports.content import RATINGS, Training
from reports.summary import SUMMARY, cell_problems, headline, summarize, summarize_problems, write_summary_json

BUDGETS = (0, 16, 32, 48, 64, 96, 128, 192)
THOUGHT = {"base": {"easy": 75, "hard": 165}, "trained": {"easy": 45, "hard": 82}}
SOLUTION = 32


def make_rows(
    models: Iterable[str] = ("base", "trained"),
    benchmarks: Iterable[str] = ("easy", "hard"),
    strategies: Iterable[str] = ("vanilla", "budget_forcing", "separate", "unconstrained"),
    budgets: Iterable[int | None] = BUDGETS,
    num_problems: int = 20,
    num_samples: int = 4,
) -> pl.DataFrame:
    """A table shaped like the miniature's: a thought has a length, and cutting it costs accuracy, the trained model
    less, separate budgeting less than budget forcing less than vanilla."""
    rng = np.random.default_rng(0)
    rows = []
    for model in models:
        for benchmark in benchmarks:
            mean = THOUGHT.get(model, THOUGHT["base"])[benchmark]
            for problem in range(num_problems):
                scale = rng.lognormal(0, 0.25)
                for sample in range(num_samples):
                    needed = max(4, int(mean * scale * rng.lognormal(0, 0.12)))
                    luck = rng.random()
                    cell = {"model": model, "benchmark": benchmark, "problem": f"{problem:03}", "sample": sample}
                    for strategy in strategies:
                        for t in [None] if strategy == "unconstrained" else budgets:
                            rows.append(cell | _response(model, strategy, t, needed, luck, int(rng.integers(8, 30))))
    return pl.DataFrame(rows, schema=SCHEMA)


def _response(model: str, strategy: str, t: int | None, needed: int, luck: float, solution: int) -> dict[str, object]:
    limited = t is not None
    room = needed if t is None else t + (SOLUTION if strategy == "vanilla" else 0)
    closed = needed <= room
    skill = {"separate": 1.0, "budget_forcing": 0.35, "vanilla": 0.05}.get(strategy, 1.0)
    share = min(1.0, room / needed) ** (0.7 if model == "trained" else 2.0)
    forced = 0 if closed or strategy == "vanilla" else {"separate": 1}.get(strategy, 5)
    thinking = min(needed, room)
    if strategy == "vanilla":  # Thought and solution share the room.
        solution = min(solution, room - thinking)
    return {
        "strategy": strategy,
        "think_budget": t,
        "solution_budget": SOLUTION if limited else None,
        "prompt_tokens": 12,
        "think_tokens": thinking,
        "forced_tokens": forced,
        "navigator_tokens": 0,
        "solution_tokens": solution,
        "forced": [False] * thinking + [True] * forced + [False] * solution,
        "dropped": [],
        "think_finish": "closed" if closed else "length" if strategy == "vanilla" else "forced",
        "solution_finish": "stop",
        "score": float(luck < (0.98 if closed else 0.9 * skill * share)),
        "grade_status": "graded",
        "seed": 0,
    }


def one_cell(**columns: object) -> pl.DataFrame:
    """Rows of one cell; the given columns, one value per row, over a table of defaults."""
    rows = pl.DataFrame(columns)
    defaults = {
        "model": "base",
        "benchmark": "hard",
        "strategy": "separate",
        "think_budget": 16,
        "solution_budget": 32,
        "think_tokens": 16,
        "forced_tokens": 1,
        "navigator_tokens": 0,
        "solution_tokens": 10,
        "input_tokens": 13,
        "cached_tokens": 28,
        "output_tokens": 26,
        "turns": 2,
        "think_finish": "forced",
        "answer": "7",
        "score": 1.0,
        "grade_status": "correct",
        "leak": False,
    }
    return rows.with_columns(**{name: pl.lit(value) for name, value in defaults.items() if name not in columns})


def test_one_row_per_cell_sorted_with_unlimited_last() -> None:
    summary = summarize(make_rows())
    assert summary.schema == SUMMARY
    assert summary.height == 2 * 2 * (3 * len(BUDGETS) + 1)
    separate = summary.filter(model="base", benchmark="hard", strategy="separate")
    assert separate["think_budget"].to_list() == list(BUDGETS)
    assert summary["num_samples"].unique().to_list() == [4]


def test_means_are_over_problems_of_the_mean_over_samples() -> None:
    rows = one_cell(
        problem=["a", "a", "a", "b"], sample=[0, 1, 2, 0], score=[1.0, 1.0, 1.0, 0.0], think_tokens=[4, 4, 4, 8]
    )
    (cell,) = summarize(rows).to_dicts()
    assert cell["avg_at_k"] == 0.5
    assert cell["think_tokens_mean"] == 6
    assert cell["tokens_mean"] == 6 + 10
    assert (cell["num_problems"], cell["num_samples"], cell["num_trajectories"]) == (2, 1, 4)


def test_forced_fraction_counts_the_think_ends_we_wrote_and_only_those() -> None:
    rows = one_cell(
        problem=["a", "b", "c", "d"],
        sample=[0, 0, 0, 0],
        think_finish=["forced", "end_of_text", "closed", "end_of_text"],
        forced_tokens=[5, 1, 0, 0],  # the last one is vanilla's: stopped inside its thought, and left as it is
    )
    (cell,) = summarize(rows).to_dicts()
    assert cell["forced_fraction"] == 0.5
    assert cell["forced_tokens_mean"] == 1.5


def test_a_repeated_key_and_an_empty_table_are_refused() -> None:
    rows = one_cell(problem=["a", "a"], sample=[0, 0])
    with pytest.raises(ValueError, match="1 rows"):
        summarize(rows)
    with pytest.raises(ValueError, match="empty"):
        summarize(make_rows(models=[]))


def test_summary_json_has_cells_with_null_for_unlimited_and_anytime_accuracy(tmp_path: Path) -> None:
    rows = make_rows(models=["base"], benchmarks=["easy"], strategies=["separate", "unconstrained"])
    problems = cell_problems(rows)
    path = tmp_path / "report" / "summary.json"
    write_summary_json(summarize(rows), anytime_accuracy(problems), RATINGS.to_frame(), path)
    written = json.loads(path.read_text())
    cells, (ladder,) = written["cells"], written["anytime"]
    assert written["ratings"] == []
    assert ladder["anytime_low"] < ladder["anytime"] < ladder["anytime_high"]
    assert [set(cell) for cell in cells] == [set(SUMMARY)] * len(cells)
    assert cells[-1]["strategy"] == "unconstrained"
    assert cells[-1]["think_budget"] is None
    assert all(cell["ci_low"] <= cell["avg_at_k"] <= cell["ci_high"] for cell in cells)
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["summary.json"]


def test_pass_and_majority_are_at_the_k_of_each_cell() -> None:
    rows = pl.concat(
        [
            one_cell(problem=["a", "a", "b", "b"], sample=[0, 1, 0, 1], score=[1.0, 0.0, 0.0, 0.0]),
            one_cell(
                problem=["a", "a", "a", "b"],
                sample=[0, 1, 2, 0],
                answer=["7", "7", "8", "8"],
                score=[1.0, 1.0, 0.0, 0.0],
                think_budget=[None] * 4,
            ).cast({"think_budget": pl.Int32}),
        ],
        how="diagonal_relaxed",
    )
    limited, free = summarize(rows).to_dicts()
    assert (limited["num_samples"], limited["pass_at_k"]) == (2, 0.5)
    assert (free["num_samples"], free["pass_at_k"]) == (1, pytest.approx(free["avg_at_k"]))
    assert limited["maj_at_k"] == 0.25  # both rows of a say 7, and are right half the time
    assert all(cell["pass_at_k_low"] <= cell["pass_at_k"] <= cell["pass_at_k_high"] for cell in (limited, free))


def test_the_order_of_rows_changes_nothing() -> None:
    rows = make_rows(num_problems=5)
    assert_frame_equal(summarize(rows), summarize(rows.sample(fraction=1, shuffle=True, seed=0)))


def test_one_problem_leaves_the_bounds_of_tokens_open() -> None:
    (cell,) = summarize(one_cell(problem=["a", "a"], sample=[0, 1])).to_dicts()
    assert (cell["tokens_mean"], cell["tokens_mean_high"]) == (26, None)
    assert cell["avg_at_k"] is not None


ROWS = make_rows(benchmarks=["easy"], num_problems=30, num_samples=2)


def training(budget: str) -> Training:
    return Training(TrainingBudget.parse(budget), False, "base", None)


def headline_of(rows: pl.DataFrame, trainings: dict[str, Training]) -> dict[str, float]:
    problems = cell_problems(rows)
    return headline(problems, summarize_problems(problems), anytime_accuracy(problems), trainings)


def test_they_are_the_numbers_of_the_report() -> None:
    numbers, summary = headline_of(ROWS, {"trained": training("48+32")}), summarize_problems(cell_problems(ROWS))
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
    stars = {name.split("/")[2] for name in headline_of(ROWS, trainings) if name.startswith("star/")}
    assert stars == expected


def test_a_bound_that_is_infinite_is_no_metric() -> None:
    one = ROWS.filter(pl.col("problem") == "000")
    numbers = headline_of(one, {})
    assert "free_tokens/easy/base/unconstrained" in numbers
    assert "free_tokens/easy/base/unconstrained_high" not in numbers, "nothing is known beyond one problem"
