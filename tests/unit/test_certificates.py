"""What is promised of a table's budgets: all of it together, on every benchmark, with training seeds, as often as one
looks."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from elastic_core.serving.choice import choose_levels
from elastic_core.statistics.betting import problems_at_least
from elastic_core.statistics.certificates import certificates, with_looks
from elastic_core.statistics.estimates import TRAIN_SEED, problem_table
from elastic_core.statistics.which_budget import Reason, budget_advice, choose_budgets
from elastic_core.trajectory import CELL

WORK = {"input_tokens": 10, "cached_tokens": 0, "turns": 1}


def rows(
    losses: np.ndarray, benchmark: str = "b", model: str = "m", think: int | None = 64, seed: int | None = None
) -> pl.DataFrame:
    """Rows of a cell that is right but for its losses, shape (problems, samples)."""
    problem, sample = np.indices(losses.shape).reshape(2, -1)
    return pl.DataFrame(
        {
            "model": model, "benchmark": benchmark, "strategy": "unconstrained" if think is None else "separate",
            "think_budget": think, "solution_budget": None if think is None else 32, TRAIN_SEED: seed,
            "problem": [f"{number:04}" for number in problem], "sample": sample, "score": 1.0 - losses.ravel(),
            "cut": False, "output_tokens": (think or 400) + 1, "prompt_tokens": 10,
            "think_tokens": think or 400, "solution_tokens": 1, "forced_tokens": 1, "answer": None,
            "think_finish": "closed" if think is None else "forced", "solution_finish": "stop",
            "solution_logprob": None, **WORK,
        },
        schema_overrides={
            "think_budget": pl.Int32, "solution_budget": pl.Int32, TRAIN_SEED: pl.Int64, "answer": pl.String,
            "solution_logprob": pl.Float64,
        },
    )  # fmt: skip


def table(*cells: pl.DataFrame) -> pl.DataFrame:
    """The problem table of cells, and of responses without a limit that are all right beside each model's."""
    found = list(cells)
    for cell in pl.concat(cells).partition_by("model", "benchmark", TRAIN_SEED):
        first = cell.filter(pl.col("think_budget") == cell["think_budget"][0])
        shape = first["problem"].n_unique(), first["sample"].n_unique()
        place = first["benchmark"][0], first["model"][0]
        found.append(rows(np.zeros(shape), *place, think=None, seed=first[TRAIN_SEED][0]))
    given = pl.concat(found)
    if given[TRAIN_SEED].null_count():
        given = given.drop(TRAIN_SEED)
    return with_looks(problem_table(given, ["score", "output_tokens", *WORK], CELL), given)


def within(problems: pl.DataFrame, margin: float = 0.02) -> list[float]:
    return certificates(problems, margin).sort(CELL)["within"].to_list()


@pytest.mark.parametrize(("samples", "looks"), [(1, 1), (2, 2), (3, 2), (4, 3), (8, 4)])
def test_samples_are_looked_at_as_their_number_doubles(samples: int, looks: int) -> None:
    losses = np.zeros((3, samples))
    losses[0, 0] = 1
    found = table(rows(losses)).filter(strategy="separate")
    assert found["looks"][0].to_list() == pytest.approx([1 - 1 / 2**power for power in range(looks)])
    assert found["looks"][1].to_list() == [1.0] * looks


def test_a_promise_takes_as_many_problems_as_it_says_and_says_how_many() -> None:
    least = problems_at_least(0.02, 0.05)
    assert within(table(rows(np.zeros((least, 1)))))[0] <= 0.02
    fewer = certificates(table(rows(np.zeros((least - 1, 1)))), 0.02)
    assert fewer["within"][0] > 0.02
    assert fewer["problems_needed"][0] == pytest.approx(least, abs=3)


def test_every_benchmark_and_every_model_has_its_part_of_the_error() -> None:
    least, shared = (problems_at_least(0.02, 0.05 / number) for number in (1, 4))
    cells = [rows(np.zeros((shared - 1, 1)), benchmark, model) for benchmark in "ab" for model in "mn"]
    assert shared > least and max(within(table(cells[0]))) <= 0.02
    assert min(within(table(*cells))) > 0.02


def test_a_budget_is_promised_no_more_than_those_above_it() -> None:
    losses = np.zeros((400, 1))
    bad = losses.copy()
    bad[:80] = 1
    smaller, larger = rows(losses, think=32), rows(bad, think=64)
    assert within(table(smaller, larger))[0] == within(table(smaller, larger))[1] > 0.2
    assert within(table(rows(bad, think=32), rows(losses, think=64)))[1] <= 0.02


def test_training_seeds_are_in_the_promise_and_one_training_is_a_promise_of_itself() -> None:
    """Two trainings, of which one loses nothing and one four points: a third may lose more than either."""
    good, bad = np.zeros((500, 1)), np.zeros((500, 1))
    bad[::25] = 1
    apart = table(rows(good, seed=1), rows(bad, seed=2))
    alike = table(rows(good, seed=1), rows(good, seed=2))
    assert within(alike)[0] <= 0.02 and within(table(rows(good)))[0] <= 0.02
    assert within(apart)[0] > 0.1
    row = budget_advice(apart).row(0, named=True)
    assert row["within"] >= -row["difference"]


def test_what_is_good_on_one_benchmark_is_not_promised_for_all_whatever_problems_are_called() -> None:
    """500 easy problems without a loss and 60 hard ones of which half are lost."""
    hard = np.zeros((60, 1))
    hard[::2] = 1
    for names in ("ab", "ba", "xy", "yx"):
        cells = [rows(np.zeros((500, 1)), names[0]), rows(hard, names[1])]
        free = [rows(np.zeros((500, 1)), names[0], think=None), rows(np.zeros((60, 1)), names[1], think=None)]
        given = pl.concat([*cells, *free]).drop(TRAIN_SEED)
        assert choose_levels(given, 0.05, 0.1).rule is Reason.NOT_CERTIFIED
        easy = given.filter(benchmark=names[0])
        assert not isinstance(choose_levels(easy, 0.05, 0.1).rule, Reason)


def test_responses_without_a_limit_that_were_cut_oftener_than_the_margin_speak_for_nothing() -> None:
    good = rows(np.zeros((500, 1)))
    free = rows(np.zeros((500, 1)), think=None).with_columns(cut=pl.col("problem") < "0015")
    for last, rule in (("0015", Reason.CAPPED), ("0005", None)):
        given = pl.concat([good, free.with_columns(cut=pl.col("problem") < last)]).drop(TRAIN_SEED)
        problems = with_looks(problem_table(given, ["score", "output_tokens", *WORK], CELL), given)
        advice = budget_advice(problems)
        found = choose_budgets(advice, problems)["m", "b"]
        assert found is rule if rule else not isinstance(found, Reason)
        assert advice["free_cap"][0] == 401
