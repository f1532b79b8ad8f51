"""What the playground shows while strategies are at work is never taken back, but for a token that a strategy drops."""

import asyncio
import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.strategies import STRATEGIES, Completion, Generate, Sampling
from elastic_core.trajectory import Trajectory
from flows.commands.answer import STRATEGY_NAMES, Follower, Thought
from tests.marks import markers, single
from tests.scripted import ScriptedEngine

END, EOS, NEWLINE, FINAL, WAIT, WORD = 1, 2, 3, 4, 5, 6
MARKERS = markers(single(0, END, EOS), (NEWLINE,), (NEWLINE, FINAL), (WAIT,))
PROMPT = (7, 8)
SIDE_BY_SIDE = [name for name in STRATEGY_NAMES if not name.startswith(("l1", "unconstrained", "reasonflux"))]


class Streaming:
    """A scripted engine that gives its tokens one by one, and lets the others look in between."""

    def __init__(self, seed: int) -> None:
        self.engine = ScriptedEngine(
            lambda prefix, _: random.Random(f"{prefix} {seed}").choice([END, EOS, WORD, WORD, WORD, WORD]), context=90
        )

    async def generate(
        self, request: Generate, seed: int, on_tokens: Callable[[list[int]], None] | None = None
    ) -> Completion:
        completion = await self.engine.generate(request, seed)
        for token in completion.tokens:
            if on_tokens is not None:
                on_tokens([token])
            await asyncio.sleep(0)
        return completion


async def side_by_side(
    engine: Streaming, names: list[str], budget: Budget
) -> list[tuple[Trajectory, list[Trajectory], Follower]]:
    """Each strategy's trajectory, and what was seen of it on the way."""
    thought = Thought(engine)
    followers = [Follower(thought, PROMPT, MARKERS) for _ in names]
    seen: list[list[Trajectory]] = [[] for _ in names]

    async def look() -> None:
        while True:
            for follower, views in zip(followers, seen, strict=True):
                views.append(follower.so_far())
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    rollouts = [
        drive(STRATEGIES[name].decode(PROMPT, budget, MARKERS, Sampling()), {"policy": follower}, 5)
        for name, follower in zip(names, followers, strict=True)
    ]
    trajectories = await asyncio.gather(*rollouts)
    looking.cancel()
    return list(zip(trajectories, seen, followers, strict=True))


def kept(view: Trajectory, whole: Trajectory) -> bool:
    """Whether what was seen is the beginning of the response, or of what was drawn before the strategy dropped it."""
    drawn = [(*whole.response_ids[:at], token) for at, token in whole.dropped]
    at = len(view.response_ids)
    return view.response_ids == whole.response_ids[:at] or view.response_ids in drawn


@given(
    st.integers(0, 10_000),
    st.permutations(SIDE_BY_SIDE).map(lambda names: names[:4]),
    st.builds(Budget, st.integers(0, 15), st.integers(1, 8)),
)
def test_what_is_seen_is_what_comes(seed: int, names: list[str], budget: Budget) -> None:
    for whole, views, follower in asyncio.run(side_by_side(Streaming(seed), names, budget)):
        assert all(kept(view, whole) for view in views)
        assert all(view.forced == whole.forced[: len(view.forced)] for view in views if not whole.dropped)
        if whole.stopped:  # A probe is seen once it is the answer.
            continue
        last = follower.so_far()
        assert (last.response_ids, last.forced) == (whole.response_ids, whole.forced)
        assert last.solution_start == whole.solution_start


def test_a_thought_is_seen_by_everyone_who_waits_for_it() -> None:
    """The second strategy is answered only after the first one's draw, and shows it token by token all the same."""
    words = Streaming(0)
    words.engine.next_token = lambda prefix, _: WORD
    (_, first, _), (_, second, _) = asyncio.run(side_by_side(words, ["separate", "budget_forcing"], Budget(6, 3)))
    lengths = [sorted({len(view.response_ids) for view in views}) for views in (first, second)]
    assert all(set(range(1, 7)) <= set(seen) for seen in lengths)
    thought, *solutions = [(len(request.prefix), request.max_tokens) for request in words.engine.requests]
    assert thought == (2, 6) and sorted(solutions) == [(9, 3), (12, 3)], "one thought, and a solution each"
