"""A controller behind a server's requests: what clients are told, and what metrics say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from elastic_core.budget import Budget
from elastic_core.serving import admission
from elastic_core.serving.admission import Admission
from elastic_core.serving.counting import CURRENT, Count, watch
from elastic_core.serving.load import Controller
from elastic_core.serving.middleware import Budgets
from elastic_core.serving.requests import Plan
from elastic_core.serving.tally import Tally
from tests.unit.test_load import GOAL, STEPS
from tests.unit.test_serving_law import END, MARKERS, MARKS, PROMPT, WORD
from tests.unit.test_serving_requests import TOKENIZER, App, Engine, Kind, SamplingParams, body, call, start


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
    first(served(load, Budget(192, 8), "first", fixed=True), [], False)
    served_next = next(i for i, (place, _) in enumerate(crowd[64:], 64) if place.is_set())
    assert served_next > 64, "the one that came first of those that wait is late in any case"


def test_who_leaves_is_no_load_any_more_and_late_responses_lower_the_next_ones(clock: Any) -> None:
    controller = Controller(GOAL, STEPS, 64)
    load = Admission(controller)
    for times, seconds, name, answered in ((1, 100.0, "left", False), (50, 4.0, "late", True)):
        for _ in range(times):
            _, over = load.arrive()
            clock.seconds += seconds
            over(served(load, Budget(192, 8), name), [], answered)
        assert controller.turns.running == 0 and metric("elastic_in_time_total", level="left") == 0
        assert controller.trim == 1.0 if name == "left" else controller.trim < 0.85
    assert metric("elastic_goal_trim") == controller.trim


def test_a_request_for_four_choices_is_as_much_load_as_four_requests(clock: Any) -> None:
    def given(requests: int, choices_each: int) -> Controller:
        controller = Controller(GOAL, STEPS, 64)
        load = Admission(controller)
        came = [(*load.arrive(choices_each), served(load, Budget(192, 8), "several")) for _ in range(requests)]
        assert sum(place.is_set() for place, *_ in came) * choices_each == controller.turns.running == 64
        clock.seconds += 2.0
        for _, over, plan in came:
            over(plan, [drawn(100)] * choices_each, True)
        assert (controller.turns.running, controller.turns.waiting) == (0, 0.0)
        return controller

    one, four = given(200, 1), given(50, 4)
    assert four.allocation.tokens == one.allocation.tokens < GOAL.points[-1].tokens
    assert abs(four.pace - 1) < abs(one.pace - 1), "fewer responses have told of the engine's speed, and the same"


def drawn(length: int) -> Tally:
    return Tally(Budget(192, 8), MARKS, None, length=length)


def state(controller: Controller, now: float) -> dict[str, Any]:
    """What the next request's thought follows from."""
    rates = {
        name: round(getattr(controller, name).value(now), 9) for name in ("_arrivals", "_lately", "_given", "_drawn")
    }
    turns = {name: getattr(controller.turns, name) for name in ("turn", "running", "waiting")}
    return {**rates, **turns, "trim": controller.trim, "pace": controller.pace, "left": controller._left}


def request(load: Admission, engine: Engine, plan: Plan, n: int = 1) -> Count:
    """A request that vLLM has read, up to its end."""
    count = Count(MARKERS, TOKENIZER, plan, load)
    _, count.over = load.arrive()
    count.plan = plan.with_thought(load.most_thought(), MARKS)
    watch(engine)

    async def run() -> None:
        CURRENT.set(count)
        sampling = SamplingParams(Kind.FINAL_ONLY, n=n)
        async for _ in engine.generate({"prompt_token_ids": list(PROMPT)}, sampling, "1"):
            pass

    answered = False
    try:
        asyncio.run(run())
        answered = True
    finally:
        count.leave(answered)
    return count


def process_inputs(*refused: object, **options: object) -> None:
    """What vLLM checks of a request before it enters the engine."""


def refuse(*refused: object, **options: object) -> None:
    raise ValueError("logit_bias contains out-of-vocab token ids")


class Refusing(Engine):
    """What `generate` of vLLM's does with a request that it refuses."""

    async def generate(self, *_: object, **__: object) -> AsyncIterator[Any]:
        refuse()
        yield


LOWERABLE = Plan("chat", {}, Budget(192, 8), "load", asked=Budget(192, 8), may_be_lowered=True)


def test_what_vllm_refuses_leaves_no_trace(clock: Any) -> None:
    """However many choices it names: neither where vLLM's server refuses it, which asks no engine, nor the engine."""
    controller = Controller(GOAL, STEPS, 64)
    load, engine = Admission(controller), Engine([WORD] * 9, 1, "stop")
    request_of(load, engine, process_inputs)
    clock.seconds += 1.0
    before = state(controller, clock.seconds)
    for n in (1, 16384):
        with pytest.raises(ValueError, match="out-of-vocab"):
            request_of(load, Refusing([], 1, None), refuse, n=n)
        assert state(controller, clock.seconds) == before
    app = App(start(b"application/json", 404), body(b"{}"))
    budgets = Budgets(app)
    budgets._admission = load
    sent = call(app, "/v1/chat/completions", {"model": "nope", "n": 16384}, pytest.MonkeyPatch(), budgets)
    assert sent[0] == 404 and state(controller, clock.seconds) == before


def request_of(load: Admission, engine: Engine, check: Any, n: int = 1) -> Count:
    engine.input_processor = SimpleNamespace(process_inputs=check)  # type: ignore[attr-defined]
    return request(load, engine, LOWERABLE, n)


def test_what_the_engine_gets_is_counted_and_given_what_the_load_leaves(clock: Any) -> None:
    controller = Controller(GOAL, STEPS, 64)
    load, engine = Admission(controller), Engine([END, *[WORD] * 8], 1, "stop")
    for _ in range(63):
        load.arrive()
    count = request_of(load, engine, process_inputs)
    (tally,) = count.tallies.values()
    assert engine.asked[0].extra_args is not None
    assert engine.asked[0].extra_args["think_budget"] == tally.budget.think < 192
    told = count.told()
    assert (told["asked"], told["why"], told["budget"]) == ("192+8", "load", str(tally.budget))
    assert controller.turns.running == 63 and controller._drawn.count == tally.length


def test_a_request_for_more_choices_than_there_are_places_is_answered(clock: Any) -> None:
    load, engine = Admission(Controller(GOAL, STEPS, 1)), Engine([END, *[WORD] * 8], 1, "stop")
    request_of(load, engine, process_inputs, n=2)
    assert len(engine.asked) == 1
