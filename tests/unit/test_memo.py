"""The continuation memo changes what is asked of the engine, and no cell's law: held against random engines, for every
strategy, in any order of cells."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.base import Engine, RequestFailed, drive
from elastic_core.engines.memo import ContinuationMemo, OfTurn, Turn
from elastic_core.strategies import STRATEGIES, Completion, Finish, Generate, Sampling
from elastic_core.trajectory import Trajectory
from tests.marks import markers, single
from tests.scripted import ScriptedEngine

END, EOS, NEWLINE, FINAL, WAIT, WORD = 1, 2, 3, 4, 5, 6
MARKERS = markers(single(0, END, EOS), (NEWLINE,), (NEWLINE, FINAL), (WAIT,))
# ReasonFlux-Zero needs a tokenizer and a library: see test_reasonflux_zero.
SHARING = [name for name, strategy in STRATEGIES.items() if strategy.shares]
Wanted = tuple[str, Budget]

CELLS = st.sampled_from(SHARING).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.just(Budget(None, None))
        if name == "unconstrained"
        else st.builds(Budget, st.integers(0, 12), st.integers(1, 8)),
    )
)


def prompt(name: str, budget: Budget) -> tuple[int, ...]:
    """L1 asks in its prompt, so there the prompt depends on the budget."""
    return (7, 8, *STRATEGIES[name].instruction(budget).encode())


class Table:
    """A model as a table: the token after a prefix is a function of the prefix, drawn when it is first looked at. It
    is what a reproducible engine would be if every draw began at the same place."""

    def __init__(self, seed: int, context: int = 160) -> None:
        self.engine = ScriptedEngine(
            lambda prefix, _: random.Random(f"{prefix} {seed}").choice([END, EOS, WORD, WORD, WORD, WORD]), context
        )

    async def generate(self, request: Generate, seed: int) -> Completion:
        await asyncio.sleep(0)
        return await self.engine.generate(request, seed)


def draw(engine: Engine, cells: Sequence[Wanted], *, together: bool = False) -> list[Trajectory]:
    async def all_cells() -> list[Trajectory]:
        rollouts = [
            drive(STRATEGIES[name].decode(prompt(name, budget), budget, MARKERS, Sampling()), {"policy": engine}, 5)
            for name, budget in cells
        ]
        return await asyncio.gather(*rollouts) if together else [await rollout for rollout in rollouts]

    return asyncio.run(all_cells())


@given(st.lists(CELLS, min_size=1, max_size=12), st.integers(0, 9), st.booleans())
def test_a_cell_gets_what_follows_its_prefix_whoever_asked_before(
    cells: list[Wanted], seed: int, together: bool
) -> None:
    alone = [draw(Table(seed), [cell])[0] for cell in cells]
    assert draw(ContinuationMemo(Table(seed)), cells, together=together) == alone


@given(st.lists(CELLS, min_size=1, max_size=12), st.integers(0, 9), st.booleans())
def test_nothing_known_is_drawn_again(cells: list[Wanted], seed: int, together: bool) -> None:
    """In any order of cells: the token after a prefix is drawn once, even where a shorter thought was closed by force
    before a longer one came to end at the same place."""
    table = Table(seed)
    memo = ContinuationMemo(table)
    draw(memo, cells, together=together)
    drawn = set()
    for request in table.engine.requests:
        completion = asyncio.run(Table(seed).generate(request, 5))
        for i in range(len(completion.tokens)):
            after = request.prefix + completion.tokens[:i]
            assert after not in drawn
            drawn.add(after)
    assert memo.counts.generated == len(drawn)


class Delayed:
    """Answers in an order of its own: what a request draws depends on where it begins, and never on when."""

    def __init__(self, seed: int, delays: random.Random) -> None:
        self.engine = ScriptedEngine(
            lambda prefix, here: random.Random(f"{prefix} {here} {seed}").choice([END, EOS, WORD, WORD, WORD, WORD]),
            160,
        )
        self.delays = delays

    async def generate(self, request: Generate, seed: int) -> Completion:
        for _ in range(self.delays.randrange(8)):
            await asyncio.sleep(0)
        return await self.engine.generate(request, seed)


async def in_turns(
    memos: Sequence[ContinuationMemo], cells: Sequence[Wanted], delays: random.Random
) -> list[Trajectory]:
    """Of thinker and solver, where there are two."""
    turns: dict[Turn, None] = {}

    async def run(name: str, budget: Budget, turn: Turn) -> Trajectory:
        with turn:
            for _ in range(delays.randrange(8)):
                await asyncio.sleep(0)
            roles = {"policy": OfTurn(memos[0], turn), "solver": OfTurn(memos[-1], turn)}
            return await drive(STRATEGIES[name].decode(prompt(name, budget), budget, MARKERS, Sampling()), roles, 5)

    begun = [run(name, budget, Turn(turns, prompt(name, budget))) for name, budget in cells]
    return list(await asyncio.gather(*begun))


@given(st.lists(CELLS, min_size=1, max_size=12), st.integers(0, 99), st.randoms(use_true_random=False), st.booleans())
def test_cells_side_by_side_are_those_of_one_after_the_other_however_they_interleave(
    cells: list[Wanted], seed: int, delays: random.Random, two_models: bool
) -> None:
    """Though a draw here depends on where it began, as with a seeded generator, and cells come in any order."""

    async def one_by_one(memos: Sequence[ContinuationMemo]) -> list[Trajectory]:
        return [(await in_turns(memos, [cell], random.Random(0)))[0] for cell in cells]

    def memos() -> list[ContinuationMemo]:
        return [ContinuationMemo(Delayed(seed + i, delays)) for i in range(1 + two_models)]

    before, together = memos(), memos()
    assert asyncio.run(in_turns(together, cells, delays)) == asyncio.run(one_by_one(before))
    assert [memo.counts for memo in together] == [memo.counts for memo in before]


@given(st.lists(CELLS, min_size=1, max_size=12), st.integers(0, 9), st.randoms(use_true_random=False))
def test_no_two_requests_are_open_of_which_one_begins_with_the_other(
    cells: list[Wanted], seed: int, delays: random.Random
) -> None:
    """Whether in turns or not."""

    class Watching(Delayed):
        async def generate(self, request: Generate, seed: int) -> Completion:
            for other in now:
                shared = min(len(other), len(request.prefix))
                assert other[:shared] != request.prefix[:shared]
            now.append(request.prefix)
            completion = await super().generate(request, seed)
            now.remove(request.prefix)
            return completion

    now: list[tuple[int, ...]] = []
    draw(ContinuationMemo(Watching(seed, delays)), cells, together=True)
    asyncio.run(in_turns([ContinuationMemo(Watching(seed, delays))], cells, delays))


@given(st.lists(CELLS, min_size=1, max_size=8), st.integers(0, 9))
def test_asked_again_everything_is_known(cells: list[Wanted], seed: int) -> None:
    memo = ContinuationMemo(Table(seed, context=10_000))
    first = draw(memo, cells)
    generated = memo.counts.generated
    assert draw(memo, cells) == first
    assert memo.counts.generated == generated


@given(
    st.lists(st.sampled_from([END, EOS, WORD]), max_size=12), st.integers(0, 14), st.sets(st.sampled_from([END, EOS]))
)
def test_slices_honour_length_and_stop_ids(tokens: list[int], limit: int, stop: set[int]) -> None:
    memo = ContinuationMemo(ScriptedEngine(lambda prefix, seed: [*tokens, *[WORD] * 20][len(prefix)]))
    asyncio.run(memo.generate(Generate((), 20, (), Sampling()), 0))
    cut = asyncio.run(memo.generate(Generate((), limit, tuple(stop), Sampling()), 0))
    assert memo.counts.generated == 20
    assert len(cut.tokens) <= limit
    assert not set(cut.tokens[:-1]) & stop
    assert cut.finish is (Finish.STOP if set(cut.tokens) & stop else Finish.LENGTH)
    assert cut.finish is Finish.STOP or len(cut.tokens) == limit


@pytest.mark.parametrize("name, budget", [(n, Budget(6, 4)) for n in SHARING if n != "unconstrained"])
@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_cell_keeps_the_law_of_independent_sampling(name: str, budget: Budget, count: int) -> None:
    """On an engine whose draws depend on where they began: the cell after larger ones of every other strategy, against
    the cell alone. Frequencies of its outcomes differ by less than five standard errors."""

    def token(prefix: tuple[int, ...], seed: int) -> int:
        return random.Random(f"{prefix} {seed}").choice([END, END, EOS, WORD, WORD])

    def outcome(trajectory: Trajectory) -> tuple[object, ...]:
        return trajectory.think_finish, trajectory.solution_finish, min(trajectory.think_tokens, 4)

    async def outcomes(seeds: range, cells: Sequence[Wanted], *, memo: bool) -> Counter[tuple[object, ...]]:
        """Of the last cell."""
        counts: Counter[tuple[object, ...]] = Counter()
        for seed in seeds:
            engine: Engine = ScriptedEngine(token)
            engine = ContinuationMemo(engine) if memo else engine
            for n, b in cells:
                done = await drive(STRATEGIES[n].decode((7, 8), b, MARKERS, Sampling()), {"policy": engine}, seed)
            counts[outcome(done)] += 1
        return counts

    before = [(n, Budget(t, 3)) for t in (2, 9) for n in SHARING if n not in ("unconstrained", name)]
    shared = asyncio.run(outcomes(range(count), [*before, (name, budget)], memo=True))
    alone = asyncio.run(outcomes(range(count, 2 * count), [(name, budget)], memo=False))
    for seen in shared.keys() | alone.keys():
        p = (shared[seen] + alone[seen]) / (2 * count)
        assert abs(shared[seen] - alone[seen]) / count <= 5 * (2 * p * (1 - p) / count) ** 0.5


def test_a_second_draw_from_a_prefix_is_another_one() -> None:
    engine = ScriptedEngine(lambda prefix, seed: random.Random(f"{prefix} {seed}").randrange(1000))
    memo = ContinuationMemo(engine)
    first, second = (
        asyncio.run(memo.generate(Generate((7,), 6, (), Sampling(), draw=draw), seed=1)) for draw in (0, 1)
    )
    again = asyncio.run(memo.generate(Generate((7,), 6, (), Sampling(), draw=1), seed=1))
    assert first != second == again


def test_other_sampling_settings_are_other_draws() -> None:
    memo = ContinuationMemo(ScriptedEngine(lambda prefix, seed: WORD))
    for sampling in (Sampling(0.6), Sampling(1.0), Sampling(0.6, logprobs=True)):
        completion = asyncio.run(memo.generate(Generate((7,), 3, (), sampling), 1))
        assert (completion.logprobs is not None) == sampling.logprobs
    assert memo.counts.generated == 9


def test_log_probabilities_are_cut_with_their_tokens() -> None:
    memo = ContinuationMemo(ScriptedEngine(lambda prefix, seed: WORD))
    sampling = Sampling(logprobs=True)
    for limit in (3, 2, 5):
        completion = asyncio.run(memo.generate(Generate((7,), limit, (), sampling), 1))
        assert completion.logprobs == (-1.0,) * limit
    assert memo.counts.generated == 5


def test_a_failure_is_not_remembered() -> None:
    class Once(ScriptedEngine):
        async def generate(self, request: Generate, seed: int) -> Completion:
            if not self.requests:
                self.requests.append(request)
                raise RequestFailed("lost")
            return await super().generate(request, seed)

    async def twice() -> Completion:
        memo = ContinuationMemo(Once(lambda prefix, seed: WORD))
        request = Generate((7,), 3, (EOS,), Sampling())
        with pytest.raises(RequestFailed):
            await memo.generate(request, 1)
        return await memo.generate(request, 1)

    assert asyncio.run(twice()).tokens == (WORD,) * 3


def test_the_context_ends_for_everyone() -> None:
    memo = ContinuationMemo(ScriptedEngine(lambda prefix, seed: WORD, context=10))
    for _ in range(2):
        completion = asyncio.run(memo.generate(Generate((7, 8), None, (EOS,), Sampling()), 1))
        assert completion == Completion((WORD,) * 8, Finish.LENGTH)
    assert memo.counts.generated == 8
