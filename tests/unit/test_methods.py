"""Rewards of published methods: their formulas, by numbers that follow from them; their memory; what they refuse."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from elastic_core.errors import UserError
from elastic_core.training.grpo.config import overrides
from elastic_core.training.grpo.parameters import GrpoParameters
from elastic_core.training.grpo.reward import reward_of
from elastic_core.training.grpo.rollout_group import RolloutGroup
from elastic_core.training.methods import METHODS
from elastic_core.training.methods.base import FILE, Group, GroupReward, Memory, Outcome

SETTINGS: dict[str, dict[str, Any]] = {
    "dler": {},
    "shorterbetter": {"beta": 0.01},
    "hapo": {},
    "alp": {"beta": 0.01},
    "laser_d": {"targets": [10, 20, 40]},
    "effort": {"effort": 0.75},
    "linear": {},
}
# Right and short, right and long, wrong and cut, wrong.
GROUP = (Outcome(1, 10, True), Outcome(1, 30, True), Outcome(0, 40, False), Outcome(0, 20, True))
OUTCOMES = st.builds(Outcome, st.sampled_from([0.0, 0.5, 1.0]), st.integers(1, 64), st.booleans())
GROUPS = st.lists(OUTCOMES, min_size=2, max_size=16)


def method(name: str, **settings: Any) -> GroupReward:
    found = reward_of(name, **SETTINGS[name] | settings)
    assert isinstance(found, GroupReward)
    return found


@pytest.mark.parametrize(
    ("name", "memory", "rewards"),
    [
        ("shorterbetter", None, [2, 2 - 0.01 * 20, -0.01 * 30, -0.01 * 10]),
        ("hapo", None, [1, 1, 0, 0]),
        # h = 20: cos(pi/4); cos(3 pi/4), which is below -0.7; cos(pi); cos(pi/2).
        ("hapo", 20, [1 + 0.5**0.5, 1 - 0.7, -1, 0]),
        ("alp", None, [1 - 0.005 * 10, 1 - 0.005 * 30, -0.005 * 40, -0.005 * 20]),
        ("laser_d", None, [1.5, 1.5, 0, 0]),
        ("laser_d", {"medium": 20}, [1.5, 1, 0, 0]),
        ("laser_d", {"high": 20}, [1.5, 1.5, 0, 0]),
        ("effort", None, [1, 0, 0, 0]),  # At most 0.75 of 25 tokens.
        ("linear", None, [1 - 0.25 * 0.5 * length / 40 for length in (10, 30)] + [-0.125, -0.0625]),
    ],
)
def test_rewards_follow_from_the_formula(name: str, memory: Any, rewards: Sequence[float]) -> None:
    assert method(name).rewards(GROUP, memory) == pytest.approx(rewards)


def test_dler_leaves_a_share_of_the_score_to_a_cut_response() -> None:
    cut = [Outcome(1, 40, False), Outcome(1, 40, True)]
    assert method("dler").rewards(cut) == [0.1, 1] and method("dler", truncated=0).rewards(cut) == [0, 1]


def test_where_no_response_is_right_the_best_length_is_the_mean() -> None:
    assert method("shorterbetter").rewards([Outcome(0, 10, True), Outcome(0, 30, True)]) == pytest.approx([-0.1, -0.1])


@pytest.mark.parametrize("name", METHODS)
@given(group=GROUPS, data=st.data())
def test_rewards_and_memory_do_not_depend_on_the_order_in_which_rollouts_end(
    name: str, group: list[Outcome], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(group))))
    reward, reordered, memory = method(name), [group[place] for place in order], None
    if reward.memory_of != "nothing":
        memory = reward.remember(None, [group])
        assert memory == reward.remember(None, [reordered]) == json.loads(json.dumps(memory))
    rewards = reward.rewards(group, memory)
    assert reward.rewards(reordered, memory) == [rewards[place] for place in order]


@given(groups=st.lists(GROUPS, max_size=5))
def test_hapo_remembers_the_shortest_right_length_of_each_problem(groups: list[list[Outcome]]) -> None:
    memory = Memory("hapo", method("hapo"))
    for group in groups:
        memory.update([("set/0", group), ("set/1", [Outcome(1, 99, True)])])
    right = [each.length for group in groups for each in group if each.right]
    assert memory.of("set/0") == min(right, default=None) and memory.of("set/2") is None


def test_laser_d_takes_the_least_target_that_covers_a_share_of_each_level() -> None:
    def of_eight(right: int, lengths: Sequence[int]) -> Group:
        return [Outcome(number < right, length, True) for number, length in enumerate(lengths)]

    easy = of_eight(8, [8, 9, 30, 30, 30, 30, 30, 30])  # 2 of 8 within 10: 5 * 2/8 >= 1
    medium = of_eight(4, [8, 8, 8, 18, 30, 30, 30, 30])  # 3 of 8 within 10: 2 * 3/8 < 1; 4 of 8 within 20
    hard = of_eight(1, [8] * 7 + [21])  # All of them: 40
    memory = method("laser_d").remember(None, [easy, medium, hard])
    assert memory == {"high": 10, "medium": 20, "low": 40}
    assert method("laser_d").remember(memory, [of_eight(8, [19] * 8)]) == {"high": 20, "medium": 20, "low": 40}


def test_a_memory_is_that_of_its_checkpoint(tmp_path: Path) -> None:
    kept, loaded = Memory("hapo", method("hapo")), Memory("hapo", method("hapo"))
    kept.update([("set/0", GROUP)])
    kept.save(tmp_path)
    loaded.load(tmp_path)
    assert loaded.of("set/0") == kept.of("set/0") == 10


def test_a_checkpoint_with_the_memory_of_another_reward_is_refused(tmp_path: Path) -> None:
    memory = Memory("laser_d", method("laser_d"))
    with pytest.raises(UserError, match=rf"{FILE} has the memory of no reward, and train.reward = laser_d"):
        memory.load(tmp_path)
    Memory("hapo", method("hapo")).save(tmp_path)
    with pytest.raises(UserError, match=r"has the memory of hapo, and train.reward = laser_d"):
        memory.load(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward": "shorterbetter"}, r"reward_settings.beta: missing \(reward = shorterbetter\)"),
        ({"reward": "hapo", "reward_settings": {"weight": 2}}, r"reward_settings.weight: input should be less than"),
        ({"reward": "hapo", "reward_settings": {"gamma": 2}}, r"reward_settings.gamma: unknown key"),
        ({"reward_settings": {"beta": 2}}, "reward_settings has no effect: reward = correctness takes none"),
        ({"reward": "hapo", "group_size": 1}, "group_size"),
        ({"reward": "hapo", "algorithm": "anytime"}, "reward = hapo compares rollouts of one answer: algorithm = any"),
    ],
)
def test_settings_that_a_method_cannot_use_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GrpoParameters(**settings)


def test_a_method_and_its_settings_are_part_of_a_trainings_key_and_configuration() -> None:
    parameters = GrpoParameters(reward="laser_d", reward_settings=SETTINGS["laser_d"])
    composed = overrides(parameters, model="m", train_files=[], validation_files=[], out_dir=Path("o"), run_name="r")
    assert (composed["+elastic.reward"], composed["+elastic.reward_settings.targets"]) == ("laser_d", [10, 20, 40])
    assert parameters.model_dump()["reward_settings"] == SETTINGS["laser_d"]
    assert not {"reward", "reward_settings"} & set(GrpoParameters().model_dump())


def test_rollouts_of_a_problem_are_rewarded_together_or_fail_together() -> None:
    async def rolled_out(rollouts: RolloutGroup, session: int, outcome: Outcome | None) -> float:
        with rollouts:
            await asyncio.sleep(0)
            if outcome is None:
                raise RuntimeError("no grade")
            return await rollouts.reward(session, outcome)

    async def run(outcomes: Sequence[Outcome | None]) -> list[Any]:
        rollouts = RolloutGroup(len(outcomes), method("shorterbetter").rewards)
        sessions = [rolled_out(rollouts, session, each) for session, each in reversed(list(enumerate(outcomes)))]
        return (await asyncio.wait_for(asyncio.gather(*sessions, return_exceptions=True), 60))[::-1]

    assert asyncio.run(run(GROUP)) == pytest.approx([2, 1.8, -0.3, -0.1])
    other = "another rollout of the problem failed: no grade"
    failed = asyncio.run(run([GROUP[0], None, GROUP[1]]))
    assert [str(error) for error in failed] == [other, "no grade", other]
