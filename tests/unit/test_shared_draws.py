"""Sharing a draw among budgets changes what is asked of the engine, and nothing of what any cell gets."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.base import Engine, RequestFailed, drive
from elastic_core.engines.scripted import ScriptedEngine
from elastic_core.engines.shared import SharedDraws
from elastic_core.markers import Markers
from elastic_core.strategies import STRATEGIES, Completion, Generate, Sampling
from elastic_core.trajectory import Trajectory

END, EOS, WORD = 1, 2, 3
MARKERS = Markers(0, END, (EOS,), (4,), (4, 5), template_opens_thinking=True)
CELLS = st.sampled_from(["separate", "budget_forcing", "vanilla", "unconstrained"]).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.just(Budget(None, None))
        if name == "unconstrained"
        else st.builds(Budget, st.integers(0, 12), st.integers(1, 8)),
    )
)


def token(prefix: tuple[int, ...], seed: int) -> int:
    return random.Random(f"{prefix} {seed}").choice([END, EOS, WORD, WORD, WORD, WORD])


def draw(engine: Engine, cells: list[tuple[str, Budget]], *, together: bool) -> list[Trajectory]:
    async def all_cells() -> list[Trajectory]:
        rollouts = [
            drive(STRATEGIES[name]((7, 8), budget, MARKERS, Sampling()), {"policy": engine}, seed=5)
            for name, budget in cells
        ]
        return await asyncio.gather(*rollouts) if together else [await rollout for rollout in rollouts]

    return asyncio.run(all_cells())


class _Reproducible(ScriptedEngine):
    """Draws by the first seed it saw for a prefix, as an engine with a seeded generator does."""

    async def generate(self, request: Generate, seed: int) -> Completion:
        await asyncio.sleep(0)
        return await super().generate(request, 0)


@given(st.lists(CELLS, min_size=1, max_size=12), st.booleans())
def test_every_cell_in_any_order_gets_what_it_gets_alone(cells: list[tuple[str, Budget]], together: bool) -> None:
    alone = [draw(_Reproducible(token, context=48), [cell], together=False)[0] for cell in cells]
    assert draw(SharedDraws(_Reproducible(token, context=48)), cells, together=together) == alone


@given(st.lists(CELLS, min_size=1, max_size=12))
def test_from_the_largest_request_down_no_draw_is_made_twice(cells: list[tuple[str, Budget]]) -> None:
    engine = _Reproducible(token, context=48)
    draw(SharedDraws(engine), [("unconstrained", Budget(None, None)), *cells], together=False)
    prompts = [request for request in engine.requests if request.prefix == (7, 8)]
    assert len(prompts) == 1


def test_tokens_are_counted_where_they_come_from() -> None:
    shared = SharedDraws(ScriptedEngine(lambda prefix, seed: WORD, context=64))
    draw(shared, [("vanilla", Budget(10, 6)), ("vanilla", Budget(4, 1))], together=True)
    assert (shared.generated, shared.reused) == (16, 5)


def test_other_seeds_are_other_draws() -> None:
    engine = ScriptedEngine(token, context=48)
    shared = SharedDraws(engine)
    request = Generate((7,), 4, (EOS,), Sampling())
    for seed in (1, 2):
        asyncio.run(shared.generate(request, seed))
    assert len(engine.requests) == 2


def test_a_failure_is_not_remembered() -> None:
    class Once(ScriptedEngine):
        async def generate(self, request: Generate, seed: int) -> Completion:
            if not self.requests:
                self.requests.append(request)
                raise RequestFailed("lost")
            return await super().generate(request, seed)

    async def twice() -> Completion:
        shared = SharedDraws(Once(lambda prefix, seed: WORD))
        request = Generate((7,), 3, (EOS,), Sampling())
        with pytest.raises(RequestFailed):
            await shared.generate(request, 1)
        return await shared.generate(request, 1)

    assert asyncio.run(twice()).tokens == (WORD,) * 3
