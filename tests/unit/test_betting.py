"""A promise by betting: it is broken as seldom as it says, and asks for as many problems as it must."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.statistics.betting import harm_p_value, problems_at_least, problems_for


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60), st.floats(0.01, 1), st.floats(0.001, 0.5))
def test_it_is_a_p_value(losses: list[float], margin: float, level: float) -> None:
    assert 0 <= harm_p_value(np.array(losses), margin, level) <= 1


@given(st.floats(0.01, 0.3), st.floats(0.01, 0.2))
def test_without_a_loss_it_takes_as_many_problems_as_are_said(margin: float, level: float) -> None:
    least = problems_at_least(margin, level)
    assert harm_p_value(np.zeros(least), margin, level) <= level * (1 + 1e-9)
    if least > 1:
        assert harm_p_value(np.zeros(least - 1), margin, level) > level
    # No test can do with fewer than that all problems of a table that loses the margin are spared by chance.
    assert least >= np.log(1 / level) / -np.log1p(-margin) - 1


def test_the_issues_floors_hold() -> None:
    assert [problems_at_least(margin, 0.05) for margin in (0.03, 0.05)] == [104, 62]


@pytest.mark.parametrize("count", [50, 100, 400])
@pytest.mark.parametrize("kind", ["whole problems", "samples", "both ways", "small"])
def test_a_promise_is_broken_as_seldom_as_it_says(count: int, kind: str) -> None:
    random, margin, level, draws = np.random.default_rng(0), 0.05, 0.1, 1000
    broken = 0
    for _ in range(draws):
        chance = random.random(count)
        losses = {
            "whole problems": (chance < margin).astype(float),
            "samples": random.binomial(4, margin, count) / 4,
            "both ways": (chance < 0.15 + margin) - (chance > 0.85).astype(float),
            "small": np.where(chance < 0.5, 2 * margin, 0.0),
        }[kind]
        broken += harm_p_value(losses, margin, level) <= level
    # Three Monte-Carlo errors above the level.
    assert broken / draws <= level + 3 * np.sqrt(level * (1 - level) / draws)


def test_more_problems_like_these_show_a_small_loss_and_never_a_large_one() -> None:
    losses = np.tile([0.0] * 49 + [1.0], 2)
    enough = problems_for(losses, 0.05, 0.05, 20_000)
    assert enough is not None and enough > len(losses)
    assert problems_for(losses, 0.01, 0.05, 20_000) is None
