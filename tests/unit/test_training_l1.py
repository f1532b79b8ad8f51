"""L1's rewards, held to the equations of the paper (Aggarwal and Welleck 2025, section 3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.strategies import STRATEGIES
from elastic_core.training.grpo.parameters import PROMPT_TOKENS, L1Parameters
from elastic_core.training.grpo.reward import LengthRequest, exact_reward, max_reward

LENGTHS = st.integers(0, 8192)
ALPHA = 3e-4


@given(LENGTHS, LENGTHS)
def test_exact_is_equation_1(length: int, asked: int) -> None:
    for correct in (0, 1):
        assert exact_reward(correct, length, asked, ALPHA) == correct - ALPHA * abs(asked - length)


@given(LENGTHS, LENGTHS)
def test_max_is_equation_2(length: int, asked: int) -> None:
    clipped = min(max(ALPHA * (asked - length) + 0.5, 0), 1)
    assert max_reward(1, length, asked, ALPHA) == clipped
    assert max_reward(0, length, asked, ALPHA) == 0


@given(LENGTHS, LENGTHS, LENGTHS)
def test_exact_pays_for_closeness_alike_on_both_sides(asked: int, near: int, further: int) -> None:
    near, far = sorted((near, further))
    for side in (-1, 1):
        assert exact_reward(1, asked + side * near, asked, ALPHA) >= exact_reward(1, asked + side * far, asked, ALPHA)
    assert exact_reward(1, asked + near, asked, ALPHA) == exact_reward(1, asked - near, asked, ALPHA)


@given(LENGTHS, LENGTHS, LENGTHS)
def test_max_never_pays_for_more_tokens(asked: int, first: int, second: int) -> None:
    shorter, longer = sorted((first, second))
    assert 0 <= max_reward(1, longer, asked, ALPHA) <= max_reward(1, shorter, asked, ALPHA) <= 1


@pytest.mark.parametrize(
    ("form", "score", "length", "reward"),
    [
        ("exact", 1, 1000, 1.0),
        ("exact", 1, 1500, 0.85),
        ("exact", 0, 500, -0.15),
        ("max", 1, 1000, 0.5),
        ("max", 1, 0, 0.8),
        ("max", 1, 2667, 0.0),
        ("max", 0, 10, 0.0),
    ],
)
def test_by_hand(form: str, score: float, length: int, reward: float) -> None:
    request = LengthRequest(L1Parameters(form=form), 1000)  # type: ignore[arg-type]
    assert request.reward(score, length) == pytest.approx(reward, abs=1e-3)


@pytest.mark.parametrize("form", ["exact", "max"])
def test_training_asks_in_the_words_of_evaluation(form: str) -> None:
    parameters = L1Parameters(form=form)  # type: ignore[arg-type]
    request = LengthRequest.drawn(parameters, seed=1)
    assert 100 <= request.tokens <= 4000 and request == LengthRequest.drawn(parameters, seed=1)
    asked = request.prompt("2+2=?")
    assert asked == STRATEGIES[f"l1_{form}"].prompt("2+2=?", Budget(request.tokens - 1, 1))
    # A token is one character at least.
    assert len(LengthRequest(L1Parameters(form=form), 4000).prompt("")) <= PROMPT_TOKENS  # type: ignore[arg-type]
