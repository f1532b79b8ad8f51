"""Less thought instead of a queue: what tokens are spent on, and a controller under loads that come and go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.engines.latency import Steps
from elastic_core.serving.frontier import Point, allocate, frontier
from elastic_core.serving.load import LATE, Controller, Goal
from elastic_core.serving.simulation import Elastic, Fixed, Machine, Policy, Replay, arrivals, simulate

THINK = [0, 64, 128, 192]
POINTS = [
    Point(think, accuracy, think + 20.0, think + 30.0)
    for think, accuracy in zip(THINK, (0.3, 0.6, 0.8, 0.9), strict=True)
]
STEPS = Steps((1, 16, 64), (0.004, 0.008, 0.024))
MACHINE = Machine(STEPS, 0.0, 64)
GOAL = Goal(tuple(POINTS), latency=3.0)


@st.composite
def measured(draw: st.DrawFn) -> list[Point]:
    count = draw(st.integers(1, 8))
    think = sorted(draw(st.lists(st.integers(0, 4000), min_size=count, max_size=count, unique=True)))
    accuracy = draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
    return [Point(t, a / 100, t + 10.0, t + 20.0) for t, a in zip(think, accuracy, strict=True)]


@given(measured(), st.floats(0, 5000))
def test_no_two_budgets_are_more_accurate_at_as_many_tokens(points: list[Point], tokens: float) -> None:
    spent = allocate(frontier(points), tokens)
    cheapest = min(points, key=lambda each: (each.tokens, -each.accuracy))
    assert 0 <= spent.share <= 1 and spent.tokens <= max(tokens, cheapest.tokens) + 1e-6
    for lower in points:
        for upper in points:
            if lower.tokens <= tokens < upper.tokens:
                share = (tokens - lower.tokens) / (upper.tokens - lower.tokens)
                assert spent.accuracy >= lower.accuracy + share * (upper.accuracy - lower.accuracy) - 1e-9
            if lower.tokens <= tokens:
                assert spent.accuracy >= lower.accuracy - 1e-9


@given(measured(), st.floats(0, 5000))
def test_the_price_is_what_a_further_token_buys(points: list[Point], tokens: float) -> None:
    vertices = frontier(points)
    spent, more = allocate(vertices, tokens), allocate(vertices, tokens + 1e-3)
    if spent.price and vertices[0].tokens <= tokens and more.price == spent.price:
        assert more.accuracy - spent.accuracy == pytest.approx(1e-3 * spent.price, rel=1e-3, abs=1e-9)
    assert (spent.price == 0) == (tokens >= vertices[-1].tokens or len(vertices) == 1)


def test_a_frontier_needs_its_vertices_alone() -> None:
    below = Point(100, 0.5, 100.0, 110.0)
    assert frontier([*POINTS, below]) == tuple(POINTS)


def replayed(
    load: float, seconds: float, policy: Policy, burstiness: float = 1.0, seed: int = 0, before: float = 0.0
) -> np.recarray:
    """Of requests at `load` times what the engine answers at the largest budget, after so many seconds at a fifth."""
    full = 64 / STEPS.at(64) / POINTS[-1].tokens
    little, much = arrivals(0.2 * full, before, seed), arrivals(load * full, seconds, seed, burstiness)
    times = np.concatenate([little, before + much])
    lengths = np.random.default_rng(seed).uniform(0.8, 1.2, (1000, 1)) * np.array([each.tokens for each in POINTS])
    right = np.random.default_rng(seed).random((1000, 1)) < np.array([each.accuracy for each in POINTS])
    replay = Replay(np.array(THINK), lengths, right.astype(float), np.full(1000, 10))
    samples = np.random.default_rng(seed + 1).integers(1000, size=len(times))
    return after(before, simulate(times, samples, replay, MACHINE, [policy]))


def after(warm: float, seen: np.recarray) -> np.recarray:
    """Without what arrived in the first seconds."""
    return seen[seen.arrived >= warm]


def test_with_little_to_do_everybody_gets_what_was_asked_for() -> None:
    controller = Controller(GOAL, STEPS, 64)
    seen = replayed(0.3, 120, Elastic(controller, THINK))
    assert set(seen.place) == {3} and controller.allocation.price == 0


@pytest.mark.parametrize("burstiness", [1.0, 0.25])
@pytest.mark.parametrize("load", [0.9, 1.5, 2.5])
def test_the_goal_is_kept_where_a_fixed_budget_makes_a_queue(load: float, burstiness: float) -> None:
    seen = after(60, replayed(load, 200, Elastic(Controller(GOAL, STEPS, 64), THINK), burstiness))
    fixed = after(60, replayed(load, 200, Fixed(3), burstiness))
    in_time, in_time_fixed = seen.seconds <= 3.0, fixed.seconds <= 3.0
    assert (~in_time).mean() <= LATE
    assert (seen.score * in_time).mean() > (fixed.score * in_time_fixed).mean()
    assert seen.score.mean() > POINTS[0].accuracy + 0.05, "more than the floor"


def test_budgets_do_not_swing_under_a_steady_load() -> None:
    """Tokens given, averaged over a goal's time, have no period of too much and too little."""
    seen = after(100, replayed(1.5, 400, Elastic(Controller(GOAL, STEPS, 64), THINK)))
    given = np.array([each.tokens for each in POINTS])[seen.place]
    windows = np.array([given[(seen.arrived >= at) & (seen.arrived < at + 3)].mean() for at in range(100, 400, 3)])
    noise = np.array([((seen.arrived >= at) & (seen.arrived < at + 3)).sum() for at in range(100, 400, 3)])
    spread = noise.std() / noise.mean()
    assert windows.std() / windows.mean() < 2 * spread + 0.05, "no more than the arrivals themselves vary"
    around = windows - windows.mean()
    for lag in (2, 3, 4):
        assert np.corrcoef(around[:-lag], around[lag:])[0, 1] > -0.4, "it does not come back the other way"


@pytest.mark.parametrize("off", [0.6, 1.0, 1.6])
def test_an_engine_that_was_timed_in_another_moment_is_known_soon(off: float) -> None:
    timed = Controller(GOAL, STEPS._replace(seconds=tuple(off * each for each in STEPS.seconds)), 64)
    seen = after(60, replayed(0.9, 150, Elastic(timed, THINK)))
    assert timed.pace == pytest.approx(1 / off, rel=0.1)
    known = after(60, replayed(0.9, 150, Elastic(Controller(GOAL, STEPS, 64), THINK)))
    right, right_known = ((each.score * (each.seconds <= 3.0)).mean() for each in (seen, known))
    assert right == pytest.approx(right_known, abs=0.03)


def test_when_the_load_is_over_everybody_gets_everything_again() -> None:
    controller = Controller(GOAL, STEPS, 64)
    policy = Elastic(controller, THINK)
    assert set(replayed(2.5, 60, policy).place[-50:]) != {3}
    now, given = 200.0, []
    for _ in range(20):
        place, ticket = policy.arrive(now)
        given.append(place)
        now += 2.0
        policy.leave(ticket, now, 1.0, 200.0)
    assert set(given[2:]) == {3}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("before", [0.0, 20.0])
def test_nearly_as_much_as_the_floor_takes_makes_no_queue_that_stays(before: float, seed: int) -> None:
    """Whether it comes to a server that starts, or to one that had little to do: a queue would take minutes to go."""
    seen = replayed(9.5, 60, Elastic(Controller(GOAL, STEPS, 64), THINK), seed=seed, before=before)
    assert (seen.seconds > 3.0).mean() < 0.02


@pytest.mark.parametrize("over", [1.1, 1.5])
def test_beyond_the_floor_as_many_are_in_time_as_the_engine_answers(over: float) -> None:
    load = over * POINTS[-1].tokens / POINTS[0].tokens
    seen = after(10, replayed(load, 60, Elastic(Controller(GOAL, STEPS, 64), THINK)))
    assert (seen.seconds <= 3.0).mean() > 0.9 / over
    assert (after(10, replayed(load, 60, Fixed(0))).seconds <= 3.0).mean() < 0.5 / over


def test_tokens_a_second_are_kept_too() -> None:
    limit = 0.6 * 64 / STEPS.at(64)
    goal = Goal(tuple(POINTS), tokens_per_second=limit)
    seen = after(50, replayed(1.0, 300, Elastic(Controller(goal, STEPS, 64), THINK)))
    assert 0.85 * limit <= seen.tokens.sum() / 250 <= 1.05 * limit


def test_a_goal_that_the_floor_cannot_keep_is_seen() -> None:
    controller = Controller(GOAL, STEPS, 64)
    policy = Elastic(controller, THINK)
    replayed(0.5, 30, policy)
    assert controller.in_reach
    replayed_over = replayed(20.0, 10, policy)
    assert set(replayed_over.place[-20:]) == {0} and not controller.in_reach


def test_what_the_engine_answers_within_the_goal_is_said() -> None:
    controller = Controller(GOAL, STEPS, 64)
    for point in POINTS:
        running = min(64.0, STEPS.running_at(3.0 / point.tokens_p95))
        assert controller.most_arrivals(point) == pytest.approx(running / STEPS.at(running) / point.tokens)
