"""Less thought instead of a queue: a controller under loads that come and go, requests in turns, and a simulation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.engines.latency import Steps
from elastic_core.serving.load import LATE, Controller, Goal, Ticket, Turns
from elastic_core.serving.simulation import Machine, Replay, arrivals, simulate
from elastic_core.statistics.frontier import Point, allocate, frontier
from elastic_core.sweep.cost import Throughput, throughput_file
from tests.elastic_command import elastic_here
from tests.unit.test_adaptive import LADDER
from tests.unit.test_sweep_executor import sweep

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
    load: float, seconds: float, server: Controller, burstiness: float = 1.0, seed: int = 0, before: float = 0.0
) -> np.recarray:
    """Of requests at `load` times what the engine answers at the largest budget, after so many seconds at a fifth."""
    full = 64 / STEPS.at(64) / POINTS[-1].tokens
    little, much = arrivals(0.2 * full, before, seed), arrivals(load * full, seconds, seed, burstiness)
    times = np.concatenate([little, before + much])
    lengths = np.random.default_rng(seed).uniform(0.8, 1.2, (1000, 1)) * np.array([each.tokens for each in POINTS])
    right = np.random.default_rng(seed).random((1000, 1)) < np.array([each.accuracy for each in POINTS])
    replay = Replay(np.array(THINK), lengths, right.astype(float), np.full(1000, 10))
    samples = np.random.default_rng(seed + 1).integers(1000, size=len(times))
    return after(before, simulate(times, samples, replay, MACHINE, [server]))


def after(warm: float, seen: np.recarray) -> np.recarray:
    """Without what arrived in the first seconds."""
    return seen[seen.arrived >= warm]


def test_with_little_to_do_everybody_gets_what_was_asked_for() -> None:
    controller = Controller(GOAL, STEPS, 64)
    seen = replayed(0.3, 120, controller)
    assert set(seen.place) == {3} and controller.allocation.price == 0


@pytest.mark.parametrize("burstiness", [1.0, 0.25])
@pytest.mark.parametrize("load", [0.9, 1.5, 2.5])
def test_the_goal_is_kept_where_a_fixed_budget_makes_a_queue(load: float, burstiness: float) -> None:
    seen = after(60, replayed(load, 200, MACHINE.server(GOAL), burstiness))
    fixed = after(60, replayed(load, 200, MACHINE.server(Goal((POINTS[3],))), burstiness))
    in_time, in_time_fixed = seen.seconds <= 3.0, fixed.seconds <= 3.0
    assert (~in_time).mean() <= LATE
    assert (seen.score * in_time).mean() > (fixed.score * in_time_fixed).mean()
    assert seen.score.mean() > POINTS[0].accuracy + 0.05, "more than the floor"


def test_budgets_do_not_swing_under_a_steady_load() -> None:
    """Tokens given, averaged over a goal's time, have no period of too much and too little."""
    seen = after(100, replayed(1.5, 400, MACHINE.server(GOAL)))
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
    seen = after(60, replayed(0.9, 150, timed))
    assert timed.pace == pytest.approx(1 / off, rel=0.1)
    known = after(60, replayed(0.9, 150, MACHINE.server(GOAL)))
    right, right_known = ((each.score * (each.seconds <= 3.0)).mean() for each in (seen, known))
    assert right == pytest.approx(right_known, abs=0.03)


def test_when_the_load_is_over_everybody_gets_everything_again() -> None:
    controller = Controller(GOAL, STEPS, 64)
    assert set(replayed(2.5, 60, controller).place[-50:]) != {3}
    now, given = 200.0, []
    for _ in range(20):
        ticket = controller.arrive(now)
        given.append(controller.most())
        now += 2.0
        controller.leave(ticket, now, 1.0, [200.0])
    assert set(given[2:]) == {None}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("before", [0.0, 20.0])
def test_nearly_as_much_as_the_floor_takes_makes_no_queue_that_stays(before: float, seed: int) -> None:
    """Whether it comes to a server that starts, or to one that had little to do: a queue would take minutes to go."""
    seen = replayed(9.5, 60, MACHINE.server(GOAL), seed=seed, before=before)
    assert (seen.seconds > 3.0).mean() < 0.02


@pytest.mark.parametrize("over", [1.1, 1.5])
def test_beyond_the_floor_as_many_are_in_time_as_the_engine_answers(over: float) -> None:
    load = over * POINTS[-1].tokens / POINTS[0].tokens
    seen = after(10, replayed(load, 60, MACHINE.server(GOAL)))
    assert (seen.seconds <= 3.0).mean() > 0.9 / over
    assert (after(10, replayed(load, 60, MACHINE.server(Goal((POINTS[0],))))).seconds <= 3.0).mean() < 0.5 / over


def test_tokens_a_second_are_kept_too() -> None:
    limit = 0.6 * 64 / STEPS.at(64)
    goal = Goal(tuple(POINTS), tokens_per_second=limit)
    seen = after(50, replayed(1.0, 300, MACHINE.server(goal)))
    assert 0.85 * limit <= seen.tokens.sum() / 250 <= 1.05 * limit


def test_a_goal_that_the_floor_cannot_keep_is_seen() -> None:
    controller = Controller(GOAL, STEPS, 64)
    replayed(0.5, 30, controller)
    assert controller.in_reach
    replayed_over = replayed(20.0, 10, controller)
    assert set(replayed_over.place[-20:]) == {0} and not controller.in_reach


def test_what_the_engine_answers_within_the_goal_is_said() -> None:
    controller = Controller(GOAL, STEPS, 64)
    for point in POINTS:
        running = min(64.0, STEPS.running_at(3.0 / point.tokens_p95))
        assert controller.most_arrivals(point) == pytest.approx(running / STEPS.at(running) / point.tokens)


# Who waits for whom: requests in turns, as an engine takes them.


def begun(tickets: list[Ticket]) -> list[bool]:
    return [each.began is not None for each in tickets]


def test_who_came_first_begins_first() -> None:
    turns = Turns(2)
    tickets = [turns.enter(float(now), 10.0, 1) for now in range(4)]
    assert begun(tickets) == [True, True, False, False] and (turns.running, turns.waiting) == (2, 20.0)
    turns.leave(5.0, tickets[1])
    assert tickets[2].began == 5.0 and turns.waiting == 10.0


def test_the_next_turn_goes_before_those_that_wait_and_not_before_those_that_run() -> None:
    turns = Turns(1)
    runs, waits = turns.enter(0.0, 10.0, 1), turns.enter(0.0, 10.0, 1)
    turns.next()
    new = turns.enter(1.0, 5.0, 1)
    assert turns.waiting == 5.0, "what it goes before is nothing that it waits for"
    turns.leave(2.0, runs)
    assert (new.began, waits.began) == (2.0, None)
    turns.leave(3.0, new)
    assert waits.began == 3.0


def test_who_leaves_while_it_waits_is_not_begun() -> None:
    turns = Turns(1)
    tickets = [turns.enter(0.0, 10.0, 1) for _ in range(3)]
    turns.leave(1.0, tickets[1])
    assert turns.waiting == 10.0
    turns.leave(2.0, tickets[0])
    assert (tickets[1].began, tickets[2].began) == (None, 2.0)


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "next"]), st.integers(0, 30), st.integers(1, 3))))
def test_nobody_is_lost_and_no_place_stays_empty_while_somebody_waits(events: list[tuple[str, int, int]]) -> None:
    turns, here, most = Turns(3), list[Ticket](), 3
    for now, (event, which, choices) in enumerate(events):
        if event == "enter":
            here.append(turns.enter(float(now), 10.0, choices))
        elif event == "leave" and here:
            turns.leave(float(now), here.pop(which % len(here)))
        elif event == "next":
            turns.next()
        running = [each for each in here if each.began is not None]
        waiting = [each for each in here if each.began is None]
        assert turns.running == sum(each.choices for each in running)
        assert not waiting or turns.running >= most
        assert turns.waiting == sum(each.tokens for each in waiting if each.turn == turns.turn)


# The simulation of a server, beside one that goes token by token.


SLOW = Steps((1, 4), (1.0, 2.5))


def fixed(replay: Replay, machine: Machine) -> Controller:
    return machine.server(Goal((replay.points()[0],)))


def by_tokens(times: list[int], lengths: list[int], most: int, fine: int = 1000) -> list[float]:
    """Seconds of responses, in small slices of time."""
    left, waiting, running = {}, list(range(len(times))), list[int]()
    now, seconds = 0.0, [0.0] * len(times)
    slice_seconds = 1 / fine
    left = {i: float(length) for i, length in enumerate(lengths)}
    while waiting or running:
        while waiting and len(running) < most and times[waiting[0]] <= now + 1e-9:
            running.append(waiting.pop(0))
        now += slice_seconds
        if not running:
            continue
        pace = slice_seconds / SLOW.at(len(running))
        for each in running:
            left[each] -= pace
        for each in [each for each in running if left[each] <= 1e-9]:
            running.remove(each)
            seconds[each] = now - times[each]
    return seconds


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), min_size=1, max_size=6).map(sorted), st.integers(1, 4))
def test_events_tell_what_small_steps_tell(requests: list[tuple[int, int]], most: int) -> None:
    times, lengths = map(list, zip(*requests, strict=True))
    tokens = np.array(lengths, float)[:, None]
    replay = Replay(np.array([0]), tokens, np.ones_like(tokens), np.zeros(len(times)))
    machine = Machine(SLOW, 0.0, most)
    seen = simulate(np.array(times, float), np.arange(len(times)), replay, machine, [fixed(replay, machine)])
    assert seen.seconds == pytest.approx(by_tokens(times, lengths, most), abs=0.05)


def test_a_prompt_holds_up_the_others_and_a_refusal_takes_nothing() -> None:
    replay = Replay(np.array([0]), np.full((1, 1), 10.0), np.ones((1, 1)), np.array([20.0]))
    machine = Machine(Steps((1, 2), (1.0, 1.0), request=0.5), 0.1, 8)
    alone = simulate(np.array([0.0]), np.zeros(1, int), replay, machine, [fixed(replay, machine)])
    assert alone.seconds == pytest.approx([2.5 + 10])
    both = simulate(np.array([0.0, 5.0]), np.zeros(2, int), replay, machine, [fixed(replay, machine)])
    assert both.seconds == pytest.approx([2.5 + 10 + 2.5, 2.5 + 10])
    refused = simulate(np.array([0.0, 5.0]), np.zeros(2, int), replay, machine, [fixed(replay, machine)], 1)
    assert refused.place.tolist() == [0, -1] and refused.seconds[1] == np.inf and refused.score.tolist() == [1, 0]


def test_servers_take_requests_in_turns() -> None:
    replay = Replay(np.array([0]), np.full((1, 1), 10.0), np.ones((1, 1)), np.zeros(1))
    times, machine = np.zeros(4), Machine(SLOW, 0.0, 4)
    one, two = (
        simulate(times, np.zeros(4, int), replay, machine, [fixed(replay, machine) for _ in range(servers)])
        for servers in (1, 2)
    )
    assert one.seconds == pytest.approx([25.0] * 4)
    assert two.seconds == pytest.approx([10 * SLOW.at(2)] * 4)


@pytest.mark.parametrize("burstiness", [1.0, 0.25])
def test_requests_come_as_often_as_is_said(burstiness: float) -> None:
    times = arrivals(20.0, 500.0, 3, burstiness)
    assert len(times) == pytest.approx(10000, rel=0.05) and times[-1] < 500 and (np.diff(times) >= 0).all()
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.1)


def test_what_is_replayed_are_whole_samples_of_a_table() -> None:
    rows = [
        {
            "benchmark": "b", "problem": "p", "sample": sample, "strategy": "separate", "think_budget": think,
            "solution_budget": 8, "prompt_tokens": 5, "think_tokens": think, "forced_tokens": 1,
            "solution_tokens": 4, "think_finish": "forced", "score": float(think > 0),
        }
        for sample in range(3)
        for think in (16, 0)
        if (sample, think) != (2, 16)
    ]  # fmt: skip
    replay = Replay.of(pl.DataFrame(rows))
    assert replay.tokens.tolist() == [[5, 21], [5, 21]] and replay.scores.tolist() == [[0, 1], [0, 1]]
    assert [each.accuracy for each in replay.points()] == [0, 1]
    with pytest.raises(ValueError, match="no rows of separate"):
        Replay.of(pl.DataFrame(rows).with_columns(strategy=pl.lit("vanilla")))


# `elastic plan serve` as a user runs it.


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("stage") / "table"
    sweep(found, cells=LADDER, num_samples=20)
    return found


def test_more_servers_are_better_and_elastic_ones_never_worse(directory: Path, tmp_path: Path) -> None:
    load = ("--rate", "40", "--latency", "0.5", "--step", "20", "5", "--concurrent", "16", "--accuracy", "50")
    done = elastic_here("plan", "serve", "--from", str(directory), *load, runs=tmp_path)
    assert done.returncode == 0, done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r"\d+ +\d", line)]
    shown = [[float(each) for each in row[1::2]] for row in rows]
    assert len(shown) > 1 and [int(row[0]) for row in rows] == sorted(int(row[0]) for row in rows)
    for fixed, elastic in ((row[:-1], row[-1]) for row in shown):
        assert elastic >= max(fixed) - 5
    assert shown[-1][-1] >= shown[0][-1]
    assert done.stdout.count("right in time: ") >= 2


def test_it_takes_what_the_sweep_timed(directory: Path, tmp_path: Path) -> None:
    asked = ("plan", "serve", "--from", str(directory), "--rate", "5", "--latency", "5")
    refused = elastic_here(*asked, runs=tmp_path)
    assert refused.returncode == 2 and "give --server ADDRESS, or --step ALONE EACH" in refused.stdout
    file = throughput_file(directory.parent, "base")
    timed = Throughput("model", "engine", 1, 100.0, 1.0, (0.01, 0.0, 0.02), None)
    timed.write(directory.parent, "base")
    assert "no seconds of steps" in elastic_here(*asked, runs=tmp_path).stdout
    file.write_text(json.dumps(json.loads(file.read_text()) | {"steps": [[1, 8], [0.02, 0.04], 0.001]}))
    done = elastic_here(*asked, runs=tmp_path)
    file.unlink()
    assert done.returncode == 0 and re.search(r"^1 +\d", done.stdout, re.M), done.stdout


def test_what_no_number_of_servers_keeps_is_one_sentence(directory: Path, tmp_path: Path) -> None:
    load = ("--rate", "5", "--latency", "0.1", "--step", "100", "0")
    done = elastic_here("plan", "serve", "--from", str(directory), *load, runs=tmp_path)
    assert done.returncode == 2 and "expected a later --latency than 0.1 s" in done.stdout
