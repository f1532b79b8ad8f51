"""A training that cannot learn, unlearns to end or samples with other weights says what it saw and what to do."""

import re
from math import nan

import pytest

from elastic_core.training.grpo.step_metrics import (
    AGREEMENT,
    IDLE_STEPS,
    LEAST_AGREEMENT,
    WARNING,
    EndUnlearned,
    NothingLearned,
    SamplerAgreement,
    disagrees,
)


def metrics(equal: int, reward: float = 0, forced: float = 1, answered: float = 0) -> dict[str, float]:
    return {
        "rollout/groups": 8.0,
        "rollout/groups_without_variance": float(equal),
        "rollout/forced": forced,
        "rollout/answered": answered,
        "rollout/acc": reward,
        "critic/score/mean": reward,
    }


def test_it_is_said_once_when_as_many_steps_in_a_row_were_idle() -> None:
    """A step that learned something begins the count anew."""
    idle = [8] * (3 * IDLE_STEPS)
    for equal, first in ((idle, IDLE_STEPS), ([8] * (IDLE_STEPS - 1) + [7] + [8] * IDLE_STEPS, 2 * IDLE_STEPS)):
        learning = NothingLearned()
        said = [learning.update(step, metrics(each)) for step, each in enumerate(equal, 1)]
        assert [step for step, sentence in enumerate(said, 1) if sentence] == [first]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (metrics(8), r"mean 0\.00.* 0% of the thoughts .* 0% of the rollouts"),
        (metrics(8, forced=0.25), "75% of the thoughts .* 0% of the rollouts"),
        (metrics(8, answered=1), "100% of the rollouts .*too hard"),
        (metrics(8, reward=1, answered=1), r"mean 1\.00.*too easy"),
        (metrics(8, reward=0.5, answered=1), r"mean 0\.50.*train\.group_size"),
    ],
)
def test_it_says_what_was_seen_and_what_to_do(seen: dict[str, float], words: str) -> None:
    learning = NothingLearned()
    *_, sentence = (learning.update(step, seen) for step in range(1, IDLE_STEPS + 1))
    assert sentence is not None and "\n" not in sentence
    assert sentence.startswith(f"{WARNING}nothing was learned in steps 1 to {IDLE_STEPS}: ")
    assert re.search(words, sentence)


def ended(cut: float, answered: float) -> dict[str, float]:
    return {"rollout/solution_cut": cut, "rollout/answered": answered}


def test_a_model_that_unlearns_to_end_is_told_of_once_when_solutions_are_cut_that_hold_an_answer() -> None:
    """Numbers of SmolLM2-135M under 96+32: at first cut solutions have no answer, then all end, then none does."""
    watcher = EndUnlearned()
    seen = [ended(0.5, 0.5), ended(0.03, 0.97), ended(0.34, 0.97), ended(0.72, 0.97), ended(1.0, 1.0)]
    said = [watcher.update(step, each) for step, each in enumerate(seen, 1)]
    assert [step for step, sentence in enumerate(said, 1) if sentence] == [4]
    sentence = said[3]
    assert sentence is not None and sentence.startswith(f"{WARNING}in step 4 the budget cut 72% of the solutions")
    assert "97% of the rollouts hold an answer" in sentence and "train.reward = finished" in sentence


def test_a_correlation_below_the_threshold_or_no_number_is_too_low() -> None:
    assert [disagrees(each) for each in (1.0, LEAST_AGREEMENT, 0.89, nan)] == [False, False, True, True]


def test_other_weights_are_told_of_at_the_first_step_of_several_in_a_row() -> None:
    agreement = SamplerAgreement()
    correlations = [0.999, 0.3, 0.2, 0.999, 0.1]
    said = [agreement.update(step, {AGREEMENT: each}) for step, each in enumerate(correlations, 1)]
    assert [step for step, sentence in enumerate(said, 1) if sentence] == [2, 5]
    assert said[1] is not None and "\n" not in said[1] and said[1].startswith(f"{WARNING}in step 2 ")
    assert re.search(
        "correlate by 0.30, expected at least 0.9.* other weights.* Stop it, delete the checkpoints", said[1]
    )


def test_a_training_that_takes_the_samplers_probabilities_has_none_to_compare() -> None:
    assert SamplerAgreement().update(1, {"critic/score/mean": 0.5}) is None
