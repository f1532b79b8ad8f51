"""L1's rewards, held to the equations of the paper (Aggarwal and Welleck 2025, section 3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from elastic_core.budget import Budget
from elastic_core.rewards.truth import Grade, GradeStatus
from elastic_core.strategies import STRATEGIES
from elastic_core.training.grpo.parameters import PROMPT_TOKENS, GrpoParameters
from elastic_core.training.grpo.reward import REWARDS, L1Parameters, LengthRequest, Rollout, measures
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory

LENGTHS = st.integers(0, 8192)
ALPHA = 3e-4


def paid(form: str, score: float, length: int, asked: int) -> float:
    """L1's reward of a response of so many sampled tokens."""
    tokens = (9,) * length
    trajectory = Trajectory((7,), tokens, (False,) * length, 0, ThinkFinish.CLOSED, SolutionFinish.STOP)
    request = LengthRequest(L1Parameters(form=form), asked)  # type: ignore[arg-type]
    return REWARDS[f"l1_{form}"](Rollout(trajectory, Grade(score, GradeStatus.CORRECT, None), request))


@given(LENGTHS, LENGTHS)
def test_exact_is_equation_1_and_max_is_equation_2(length: int, asked: int) -> None:
    for correct in (0, 1):
        assert paid("exact", correct, length, asked) == correct - ALPHA * abs(asked - length)
    assert paid("max", 1, length, asked) == min(max(ALPHA * (asked - length) + 0.5, 0), 1)
    assert paid("max", 0, length, asked) == 0


@pytest.mark.parametrize(
    ("form", "score", "length", "expected"),
    [
        ("exact", 1, 1000, 1.0), ("exact", 1, 1500, 0.85), ("exact", 0, 500, -0.15), ("max", 1, 1000, 0.5),
        ("max", 1, 0, 0.8), ("max", 1, 2667, 0.0), ("max", 0, 10, 0.0),
    ],
)  # fmt: skip
def test_by_hand(form: str, score: float, length: int, expected: float) -> None:
    assert paid(form, score, length, 1000) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("form", ["exact", "max"])
def test_training_asks_in_the_words_of_evaluation(form: str) -> None:
    parameters = L1Parameters(form=form)  # type: ignore[arg-type]
    request = LengthRequest.drawn(parameters, seed=1)
    assert 100 <= request.tokens <= 4000 and request == LengthRequest.drawn(parameters, seed=1)
    asked = request.prompt("2+2=?")
    assert asked == STRATEGIES[f"l1_{form}"].prompt("2+2=?", Budget(request.tokens - 1, 1))
    # A token is one character at least.
    assert len(LengthRequest(L1Parameters(form=form), 4000).prompt("")) <= PROMPT_TOKENS  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("finish", "score", "paid"),
    [(SolutionFinish.STOP, 1.0, 1.0), (SolutionFinish.STOP, 0.0, 0.0), (SolutionFinish.LENGTH, 1.0, 0.0)],
)
def test_finished_pays_for_a_right_solution_that_the_model_ended(
    finish: SolutionFinish, score: float, paid: float
) -> None:
    trajectory = Trajectory((7,), (9,) * 3, (False,) * 3, 0, ThinkFinish.CLOSED, finish)
    rollout = Rollout(trajectory, Grade(score, GradeStatus.CORRECT if score else GradeStatus.WRONG, None))
    assert (REWARDS["finished"](rollout), REWARDS["correctness"](rollout)) == (paid, score)


def test_the_reward_is_correctness_or_that_of_l1s_form_and_no_part_of_a_key_by_default() -> None:
    of_l1 = GrpoParameters(strategy="vanilla", l1={"form": "max"})  # type: ignore[arg-type]
    assert (GrpoParameters().reward_name, of_l1.reward_name) == ("correctness", "l1_max")
    assert not {"reward"} & (GrpoParameters().model_dump().keys() | of_l1.model_dump().keys())
    with pytest.raises(ValidationError, match=r'"brief".* correctness, finished, l1_exact, l1_max'):
        GrpoParameters(reward="brief")
    with pytest.raises(ValidationError, match=r"train\.l1"):
        GrpoParameters(reward="l1_exact")


def test_rollouts_whose_grading_took_too_long_are_counted() -> None:
    trajectory = Trajectory((7,), (9,), (False,), 0, ThinkFinish.CLOSED, SolutionFinish.STOP)
    counted = {
        status: measures(Rollout(trajectory, Grade(0.0, status, "1")))["grading_timeout"] for status in GradeStatus
    }
    assert [status for status, number in counted.items() if number] == [GradeStatus.TIMEOUT]
