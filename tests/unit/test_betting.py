"""A promise by betting: it is broken as seldom as it says, and asks for as many problems as it must."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.statistics.betting import largest_capital, problems_at_least


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
