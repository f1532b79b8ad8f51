"""Which tokens of a rollout enter the loss."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from elastic_core.budget import Budget
from elastic_core.strategies import STRATEGIES, Completion, Finish, Sampling
from elastic_core.training.grpo.parameters import GrpoParameters
from elastic_core.trajectory import SolutionFinish, Trajectory
from tests.unit.test_memo import END, EOS, MARKERS, WORD


def decoded(stream: list[int], strategy: str = "separate") -> Trajectory:
    """What a strategy makes, under 3+2, of a model that writes `stream`, stopping where it is asked to."""
    left, rollout = list(stream), STRATEGIES[strategy].decode((7,), Budget(3, 2), MARKERS, Sampling())
    request = next(rollout)
    while True:
        tokens: list[int] = []
        while left and len(tokens) < (request.max_tokens or 99) and (not tokens or tokens[-1] not in request.stop):
            tokens.append(left.pop(0))
        stopped = bool(tokens) and tokens[-1] in request.stop
        try:
            request = rollout.send(Completion(tuple(tokens), Finish.STOP if stopped else Finish.LENGTH))
        except StopIteration as stop:
            trajectory: Trajectory = stop.value
            return trajectory


CLOSED = decoded([WORD, END, WORD, EOS])
FORCED = decoded([WORD, WORD, WORD, WORD, EOS])
STOPPED = decoded([WORD, EOS, WORD, EOS])
CUT = decoded([WORD, END, WORD, WORD, WORD])
FORCED_AND_CUT = decoded([WORD] * 9)


@pytest.mark.parametrize(
    ("trajectory", "mask", "with_forced_end", "without_truncated"),
    [
        (CLOSED, [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]),
        (FORCED, [1, 1, 1, 0, 1, 1], [1] * 6, [1, 1, 1, 0, 1, 1]),
        (STOPPED, [1, 0, 1, 1], [1] * 4, [1, 0, 1, 1]),
        (CUT, [1, 1, 1, 1], [1] * 4, [0] * 4),
        (FORCED_AND_CUT, [1, 1, 1, 0, 1, 1], [1] * 6, [0] * 6),
    ],
)
def test_sampled_tokens_are_trained_on_and_others_as_asked(
    trajectory: Trajectory, mask: list[int], with_forced_end: list[int], without_truncated: list[int]
) -> None:
    assert trajectory.loss_mask() == mask
    assert trajectory.loss_mask(forced_end=True) == with_forced_end
    assert trajectory.loss_mask(truncated=False) == without_truncated


@pytest.mark.parametrize(
    ("stream", "truncated"),
    [([WORD] * 5, True), ([WORD, END, WORD, WORD, WORD], True), ([WORD, END, EOS], False), ([WORD, WORD, EOS], False)],
)
def test_a_single_pass_is_truncated_in_its_thought_or_in_its_solution(stream: list[int], truncated: bool) -> None:
    assert decoded(stream, "vanilla").is_truncated is truncated


@given(st.lists(st.sampled_from([WORD, END, EOS]), max_size=8), st.booleans(), st.booleans())
def test_a_mask_has_every_token_and_no_more_of_them_the_stricter_it_is(
    stream: list[int], forced_end: bool, truncated: bool
) -> None:
    trajectory = decoded(stream)
    mask = trajectory.loss_mask(forced_end=forced_end, truncated=truncated)
    assert len(mask) == len(trajectory.response_ids)
    assert all(one <= all_of_it for one, all_of_it in zip(mask, trajectory.loss_mask(forced_end=True), strict=True))
    assert trajectory.loss_mask() == [int(not forced) for forced in trajectory.forced]


@pytest.mark.parametrize(
    ("trajectory", "row"),
    [
        (CLOSED, (WORD, END, WORD, EOS)),
        (FORCED, (WORD, WORD, WORD, END, WORD, EOS)),
        (CUT, (WORD, END, WORD, WORD, EOS)),
        (FORCED_AND_CUT, (WORD, WORD, WORD, END, WORD, WORD, EOS)),
        (STOPPED, (WORD, EOS)),
    ],
)
def test_as_published_every_row_ends_with_one_end_of_text_and_is_all_trained_on(
    trajectory: Trajectory, row: tuple[int, ...]
) -> None:
    published = trajectory.as_published(EOS)
    assert published.response_ids == row
    assert published.loss_mask(forced_end=True) == [1] * len(row)


@given(st.lists(st.sampled_from([WORD, END, EOS]), max_size=8), st.integers(8, 12))
def test_as_published_a_row_is_what_the_script_s_mask_leaves_of_a_padded_one(stream: list[int], width: int) -> None:
    trajectory = decoded(stream + [WORD] * 9)
    # Theirs keeps in the response an end-of-text that a thought stopped at; the strategy has taken it out.
    response = list(trajectory.response_ids)
    for at, token in trajectory.dropped:
        response.insert(at, token)
    padded = response + [EOS] * (width - len(response))
    assert trajectory.as_published(EOS).response_ids == tuple(padded[: padded.index(EOS) + 1])


def test_as_published_has_no_probability_of_an_end_that_nobody_sampled() -> None:
    cut = replace(CUT, logprobs=(-0.1, -0.2, -0.3, -0.4))
    assert cut.as_published(EOS).logprobs == (-0.1, -0.2, -0.3, -0.4, 0.0)
    assert (cut.as_published(EOS).solution_tokens, cut.as_published(EOS).is_truncated) == (2, True)
    stopped = STOPPED.as_published(EOS)
    assert (stopped.solution_start, stopped.solution_finish) == (None, SolutionFinish.NOT_APPLICABLE)


def test_at_their_defaults_the_settings_are_no_part_of_a_training_s_key() -> None:
    names = {"mask_truncated_samples", "train_on_forced_end", "as_published"}
    assert not names & GrpoParameters().model_dump(mode="json").keys()
    given = [{"mask_truncated_samples": True, "train_on_forced_end": True}, {"as_published": True}]
    assert names <= {name for each in given for name in GrpoParameters(**each).model_dump(mode="json")}


FORCED_END, PUBLISHED = {"train_on_forced_end": True}, {"as_published": True}


@pytest.mark.parametrize(
    ("asked", "settings", "message"),
    [
        (FORCED_END, {"strategy": "vanilla"}, "strategy = vanilla, algorithm = grpo, expected separate, grpo"),
        (FORCED_END, {"algorithm": "anytime"}, "strategy = separate, algorithm = anytime, expected separate, grpo"),
        (FORCED_END, {"reuse_rollout_logprobs": True}, "expected reuse_rollout_logprobs = false"),
        (PUBLISHED, {"reuse_rollout_logprobs": True}, "expected reuse_rollout_logprobs = false"),
        (
            PUBLISHED,
            {"strategy": "vanilla"},
            "as_published is of one answer under separate budgets: strategy = vanilla",
        ),
        (PUBLISHED, {"algorithm": "anytime"}, "algorithm = anytime, expected separate, grpo"),
        (PUBLISHED, {"mask_truncated_samples": True}, "trains with mask_truncated_samples = False, found True"),
        (PUBLISHED, {"reward": "finished"}, "reward = correctness, found finished"),
        (PUBLISHED, {"loss_mode": "gspo"}, "loss_mode = vanilla, found gspo"),
        (PUBLISHED, {"filter_groups": True}, "filter_groups = False, found True"),
        (PUBLISHED, {"steps": 1}, "one step fewer than steps = 1; expected 2 or more"),
    ],
)
def test_what_has_no_effect_or_is_not_the_published_scripts_is_refused(
    asked: dict[str, bool], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        GrpoParameters(**asked, **settings)
    unsaid = GrpoParameters(as_published=True, rollout_correction={}, norm_adv_by_std="group", one_pass=True)
    assert unsaid.rollout_correction is None
