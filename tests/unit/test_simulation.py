"""The simulation of a server, beside one that goes token by token."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.engines.latency import Steps
from elastic_core.serving.simulation import Fixed, Machine, Replay, arrivals, simulate

STEPS = Steps((1, 4), (1.0, 2.5))


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
        pace = slice_seconds / STEPS.at(len(running))
        for each in running:
            left[each] -= pace
        for each in [each for each in running if left[each] <= 1e-9]:
            running.remove(each)
            seconds[each] = now - times[each]
    return seconds


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), min_size=1, max_size=6).map(sorted),
    st.integers(1, 4),
)
def test_events_tell_what_small_steps_tell(requests: list[tuple[int, int]], most: int) -> None:
    times, lengths = map(list, zip(*requests, strict=True))
    tokens = np.array(lengths, float)[:, None]
    replay = Replay(np.array([0]), tokens, np.ones_like(tokens), np.zeros(len(times)))
    seen = simulate(np.array(times, float), np.arange(len(times)), replay, Machine(STEPS, 0.0, most), [Fixed(0)])
    assert seen.seconds == pytest.approx(by_tokens(times, lengths, most), abs=0.05)


def test_a_prompt_holds_up_the_others_and_a_refusal_takes_nothing() -> None:
    replay = Replay(np.array([0]), np.full((1, 1), 10.0), np.ones((1, 1)), np.array([20.0]))
    machine = Machine(Steps((1, 2), (1.0, 1.0), request=0.5), 0.1, 8)
    alone = simulate(np.array([0.0]), np.zeros(1, int), replay, machine, [Fixed(0)])
    assert alone.seconds == pytest.approx([2.5 + 10])
    both = simulate(np.array([0.0, 5.0]), np.zeros(2, int), replay, machine, [Fixed(0)])
    assert both.seconds == pytest.approx([2.5 + 10 + 2.5, 2.5 + 10])
    refused = simulate(np.array([0.0, 5.0]), np.zeros(2, int), replay, machine, [Fixed(0, most_open=1)])
    assert refused.place.tolist() == [0, -1] and refused.seconds[1] == np.inf and refused.score.tolist() == [1, 0]


def test_servers_take_requests_in_turns() -> None:
    replay = Replay(np.array([0]), np.full((1, 1), 10.0), np.ones((1, 1)), np.zeros(1))
    times = np.zeros(4)
    one, two = (
        simulate(times, np.zeros(4, int), replay, Machine(STEPS, 0.0, 4), [Fixed(0) for _ in range(servers)])
        for servers in (1, 2)
    )
    assert one.seconds == pytest.approx([25.0] * 4)
    assert two.seconds == pytest.approx([10 * STEPS.at(2)] * 4)


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
