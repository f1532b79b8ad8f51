"""What is promised of a table's budgets: all of it together, on every benchmark, with training seeds, as often as one
looks. A promise by betting is broken as seldom as it says, and asks for as many problems as it must."""

from __future__ import annotations

from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.serving.choice import choose_levels
from elastic_core.statistics.certificates import certificates, largest_capital, problems_at_least, with_looks
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


# The test by betting.


def shown(losses: np.ndarray, margin: float, level: float) -> np.ndarray:
    """Whether each of several tables shows it, by losses of shape (…, looks, problems)."""
    return largest_capital(losses, np.array([margin]), level)[..., 0] >= -np.log(level)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60), st.lists(st.floats(0.01, 0.99), min_size=1, max_size=3))
def test_capital_is_never_below_what_one_began_with_and_wider_margins_are_bet_on_apart(
    losses: list[float], margins: list[float]
) -> None:
    found = largest_capital(np.array([losses]), np.array(margins), 0.05)
    assert found.shape == (len(margins),) and (found >= 0).all() and np.isfinite(found).all()
    alone = [largest_capital(np.array([losses]), np.array([margin]), 0.05)[0] for margin in margins]
    assert found == pytest.approx(alone)


@given(st.floats(0.01, 0.3), st.floats(0.01, 0.2), st.integers(1, 4))
def test_without_a_loss_it_takes_as_many_problems_as_are_said(margin: float, level: float, looks: int) -> None:
    least = problems_at_least(margin, level, looks)
    assert shown(np.zeros((looks, least)), margin, level)
    assert least == 1 or not shown(np.zeros((looks, least - 1)), margin, level)


@pytest.mark.parametrize("level", [0.05, 0.1])
def test_no_table_without_a_loss_is_a_promise_where_chance_makes_one_too_often(level: float) -> None:
    """Exactly: of n problems, each of which is lost with the chance of the margin, none is with (1 - margin)**n."""
    for margin in np.arange(1, 40) / 200:
        assert (1 - margin) ** problems_at_least(margin, level) <= level


OUTCOMES = {  # of one problem: its losses at one and two samples, and their chances at a margin
    "whole problems": lambda m: {(1.0, 1.0): m, (0.0, 0.0): 1 - m},
    "samples": lambda m: {
        (first, (first + second) / 2): (m if first else 1 - m) * (m if second else 1 - m)
        for first, second in product((0.0, 1.0), repeat=2)
    },
    "both ways": lambda m: {(1.0, 1.0): 0.2 + m, (-1.0, -1.0): 0.2, (0.0, 0.0): 0.6 - m},
    "small": lambda m: {(2 * m, 2 * m): 0.5, (0.0, 0.0): 0.5},
}


@pytest.mark.parametrize("kind", OUTCOMES)
@pytest.mark.parametrize("margin", [0.05, 0.2, 0.4])
def test_a_promise_is_broken_as_seldom_as_it_says_however_often_one_looks(kind: str, margin: float) -> None:
    """Exactly, over all tables of eight problems; a look after each problem, and at one and two samples of each."""
    outcomes = OUTCOMES[kind](margin)
    tables = np.array(list(product(outcomes, repeat=8 if len(outcomes) < 4 else 6)))  # tables, problems, looks
    chances = np.prod(list(product(outcomes.values(), repeat=tables.shape[1])), axis=1)
    assert chances.sum() == pytest.approx(1)
    for level in (0.05, 0.2, 0.5):
        broken = np.zeros(len(tables), dtype=bool)
        for looks, problems in product((1, 2), range(1, tables.shape[1] + 1)):
            losses = np.moveaxis(tables[:, :problems, :looks], 1, 2)
            broken |= shown(losses, margin, level)
        assert chances[broken].sum() <= level


def test_groups_count_by_their_size() -> None:
    """Of groups that are a half as large, bets lose and win half as much; two of them are less than one whole."""
    losses = np.zeros((1, 200))
    whole, halves = (largest_capital(losses, np.array([0.05]), 0.05, np.full(200, weight))[0] for weight in (1.0, 0.5))
    assert halves == pytest.approx(whole / 2, rel=0.15)
    mixed = np.where(np.arange(200) % 10, 0.0, 1.0)[None]
    heavy, light = (np.where(np.arange(200) % 10, 1.0, weight) for weight in (1.0, 0.1))
    by_light, by_heavy = (largest_capital(mixed, np.array([0.05]), 0.05, weight)[0] for weight in (light, heavy))
    assert by_light > by_heavy


def test_a_loss_costs_and_more_problems_like_these_show_a_small_one() -> None:
    losses = np.array([0.0] * 49 + [1.0])
    assert not shown(np.tile(losses, 2)[None], 0.05, 0.05)
    assert shown(np.tile(losses, 12)[None], 0.05, 0.05)
    assert not shown(np.tile(losses, 100)[None], 0.01, 0.05)
