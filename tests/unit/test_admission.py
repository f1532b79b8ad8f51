"""A controller behind a server's requests: what clients are told, and what metrics say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from elastic_core.budget import Budget
from elastic_core.serving import admission
from elastic_core.serving.admission import Admission
from elastic_core.serving.load import Controller
from elastic_core.serving.requests import Plan, choices
from tests.unit.test_load import GOAL, STEPS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(admission.time, "monotonic", lambda: now.seconds)
    return now


def served(load: Admission, asked: Budget, level: str, fixed: bool = False) -> Plan:
    left = None if fixed else load.most_thought()
    think = asked.think if left is None or asked.think is None else min(left, asked.think)
    return Plan("chat", {}, Budget(think, asked.solution), level, asked=asked, fixed=fixed)


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_without_a_goal_nobody_is_told_of_load() -> None:
    load = Admission()
    _, over = load.arrive()
    plan = served(load, Budget(192, 8), "high")
    assert load.told(plan) == {} and plan.budget == plan.asked
    over(plan, [], True)


def test_a_crowd_gets_less_and_is_told_why(clock: Any) -> None:
    load = Admission(Controller(GOAL, STEPS, 64))
    plans, ends = [], []
    for _ in range(200):
        clock.seconds += 0.001
        ends.append(load.arrive()[1])
        plans.append(served(load, Budget(192, 8), "crowd"))
    assert load.told(plans[0]) | {"price": 0} == {"asked": "192+8", "why": "asked", "price": 0}
    assert plans[-1].budget.think == 0
    told = load.told(plans[-1])
    assert (told["asked"], told["why"]) == ("192+8", "load") and told["price"] == metric("elastic_token_price") > 0
    fixed = served(load, Budget(192, 8), "crowd", fixed=True)
    assert load.told(fixed)["why"] == "fixed" and fixed.budget == Budget(192, 8)
    clock.seconds += 1.0
    for plan, over in zip(plans, ends, strict=True):
        over(plan, [], True)
    assert metric("elastic_budget_given_count", level="crowd") == 200
    assert metric("elastic_in_time_total", level="crowd") == 200
    right = metric("elastic_expected_right_total", level="crowd")
    assert 200 * 0.3 <= right < 200 * 0.9


def test_a_request_that_would_be_late_goes_before_those_that_wait(clock: Any) -> None:
    load = Admission(Controller(GOAL, STEPS, 64))
    crowd = [load.arrive() for _ in range(1000)]
    assert [place.is_set() for place, _ in crowd] == [True] * 64 + [False] * 936
    assert metric("elastic_turns_total") >= 1
    _, first = crowd[0]
    first(None, [], False)
    served_next = next(i for i, (place, _) in enumerate(crowd[64:], 64) if place.is_set())
    assert served_next > 64, "the one that came first of those that wait is late in any case"


def test_who_leaves_or_is_refused_is_no_load_any_more(clock: Any) -> None:
    controller = Controller(GOAL, STEPS, 64)
    load = Admission(controller)
    for plan, answered in ((None, False), (served(load, Budget(192, 8), "left"), False)):
        _, over = load.arrive()
        clock.seconds += 100.0
        over(plan, [], answered)
    assert (controller.turns.running, controller.trim) == (0, 1.0)
    assert metric("elastic_in_time_total", level="left") == 0


def test_late_responses_lower_the_next_ones(clock: Any) -> None:
    controller = Controller(GOAL, STEPS, 64)
    load = Admission(controller)
    for _ in range(50):
        _, over = load.arrive()
        clock.seconds += 4.0
        over(served(load, Budget(192, 8), "late"), [], True)
    assert controller.trim < 0.85 and metric("elastic_goal_trim") == controller.trim


def test_a_request_for_four_choices_is_as_much_load_as_four_requests(clock: Any) -> None:
    def given(requests: int, choices_each: int) -> Controller:
        controller = Controller(GOAL, STEPS, 64)
        load = Admission(controller)
        came = [(*load.arrive(choices_each), served(load, Budget(192, 8), "several")) for _ in range(requests)]
        assert sum(place.is_set() for place, *_ in came) * choices_each == controller.turns.running == 64
        clock.seconds += 2.0
        for _, over, plan in came:
            over(plan, [SimpleNamespace(length=100)] * choices_each, True)  # type: ignore[list-item]
        assert (controller.turns.running, controller.turns.waiting) == (0, 0.0)
        return controller

    one, four = given(200, 1), given(50, 4)
    assert four.allocation.tokens == one.allocation.tokens < GOAL.points[-1].tokens
    assert abs(four.pace - 1) < abs(one.pace - 1), "fewer responses have told of the engine's speed, and the same"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, 1),
        ({"n": 4}, 4),
        ({"prompt": ["one", "two"], "n": 3}, 6),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2], [3]]}, 2),
        ({"n": 10**9}, 1),
        ({"n": "many", "prompt": []}, 1),
    ],
)
def test_how_many_responses_a_request_asks_for(body: dict[str, Any], expected: int) -> None:
    assert choices(body) == expected


def test_as_much_load_leaves_as_came_whatever_the_engine_made_of_the_request(clock: Any) -> None:
    controller = Controller(GOAL, STEPS, 64)
    load = Admission(controller)
    _, over = load.arrive(choices({"n": 2.0}))  # vLLM reads it as 2.
    over(served(load, Budget(192, 8), "two"), [SimpleNamespace(length=100)] * 2, True)  # type: ignore[list-item]
    assert controller.turns.running == 0
