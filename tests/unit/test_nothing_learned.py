"""A training that cannot learn says so once it is certain, with what it saw and what to do."""

import re

import pytest

from elastic_core.training.grpo.step_metrics import IDLE_STEPS, WARNING, NothingLearned


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
    learning = NothingLearned()
    said = [learning.update(step, metrics(8)) for step in range(1, 3 * IDLE_STEPS)]
    assert [step for step, sentence in enumerate(said, 1) if sentence] == [IDLE_STEPS]


def test_a_step_that_learned_something_begins_the_count_anew() -> None:
    learning = NothingLearned()
    equal = [8] * (IDLE_STEPS - 1) + [7] + [8] * IDLE_STEPS
    said = [learning.update(step, metrics(each)) for step, each in enumerate(equal, 1)]
    assert [step for step, sentence in enumerate(said, 1) if sentence] == [2 * IDLE_STEPS]


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
