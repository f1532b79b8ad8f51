"""What a table tells a resumed sweep: every token that was drawn, where, and by whom."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.base import drive
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.strategies import STRATEGIES, Completion, Generate, Sampling
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.sweep import plan as planning
from elastic_core.sweep.grid import Cell
from elastic_core.sweep.plan import StoredRows, draws, learn, plan_sweep
from elastic_core.sweep.rows import RowBuilder, Sample
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.trajectory import Trajectory
from tests.scripted import ScriptedEngine
from tests.unit.test_memo import CELLS, END, EOS, MARKERS, WORD, Wanted, prompt

PROBLEM = Problem("easy", "1", "question", "4", "math")


class _Tokenizer:
    name_or_path = "letters"

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(chr(97 + i) for i in ids)

    def batch_decode(self, many: Any, **_: Any) -> list[str]:
        return [self.decode(ids) for ids in many]


class _Prompts:
    strategies = STRATEGIES

    def ids(self, problem: Problem, strategy: str, budget: Budget) -> tuple[int, ...]:
        return prompt(strategy, budget)


def token(prefix: tuple[int, ...], seed: int) -> int:
    """Depends on where the draw began, as with a seeded generator."""
    return random.Random(f"{prefix} {seed}").choice([END, EOS, WORD, WORD, WORD, WORD])


def run(engine: Any, cell: Wanted) -> Trajectory:
    name, budget = cell
    rollout = STRATEGIES[name].decode(prompt(name, budget), budget, MARKERS, Sampling())
    return asyncio.run(drive(rollout, {"policy": engine}, 5))


def rows(done: list[tuple[Wanted, Trajectory]], model: str = "base") -> Any:
    builder = RowBuilder(_Tokenizer(), MARKERS, "m", "e")
    return builder.frame(
        [(Sample(Cell(model, "easy", name, budget), PROBLEM, 0, 5), done) for (name, budget), done in done]
    )


@given(st.lists(CELLS, min_size=1, max_size=6, unique=True), CELLS, st.randoms())
def test_a_memo_rebuilt_from_the_table_goes_on_as_the_one_that_made_it(
    before: list[Wanted], after: Wanted, order: random.Random
) -> None:
    """Whatever the order in which its rows are read."""
    original = ContinuationMemo(ScriptedEngine(token, context=10_000))
    done = [(cell, run(original, cell)) for cell in before]
    order.shuffle(done)
    rebuilt = ContinuationMemo(ScriptedEngine(token, context=10_000))
    learn({"base": rebuilt}, rows(done), _Prompts(), PROBLEM, Sampling())  # type: ignore[arg-type]
    drawn = original.counts.generated
    assert run(original, after) == run(rebuilt, after)
    assert rebuilt.counts.generated == original.counts.generated - drawn


def test_each_sample_that_is_not_finished_finds_its_own_rows_block_by_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "BLOCK", 2)
    there, missing = (Cell("base", "easy", "vanilla", Budget(think, 2)) for think in (8, 4))
    done = run(ScriptedEngine(token, context=10_000), ("vanilla", there.budget))
    builder = RowBuilder(_Tokenizer(), MARKERS, "m", "e")
    store = TrajectoryStore(tmp_path)
    with store.writing(Manifest({}, {}, {}, {})):
        for number in (4, 1, 3, 0):
            store.append(builder.frame([(Sample(there, PROBLEM, number, 5), done)]))
        finished = store.finished()
        plan = plan_sweep([there, missing], {"easy": [PROBLEM]}, num_samples=5, seed=0, finished=finished)
        stored = StoredRows(store, plan)
        assert [stored.rows(unit)["sample"].to_list() for unit in plan.work] == [[0], [1], [], [3], [4]]


@given(CELLS.filter(lambda cell: STRATEGIES[cell[0]].roles != ("policy",)))
def test_of_two_models_each_learns_what_it_drew(cell: Wanted) -> None:
    thinker, solver = ScriptedEngine(token), ScriptedEngine(lambda prefix, seed: token(prefix, seed + 1))
    name, budget = cell
    rollout = STRATEGIES[name].decode(prompt(name, budget), budget, MARKERS, Sampling())
    done = asyncio.run(drive(rollout, {"thinker": thinker, "solver": solver}, 5))
    memos = {"a": ContinuationMemo(ScriptedEngine(token)), "b": ContinuationMemo(ScriptedEngine(token))}
    learn(memos, rows([(cell, done)], "a>b"), _Prompts(), PROBLEM, Sampling())  # type: ignore[arg-type]
    for engine, memo in ((thinker, memos["a"]), (solver, memos["b"])):
        for request in engine.requests:
            known = asyncio.run(
                memo.generate(Generate(request.prefix, request.max_tokens, request.stop, Sampling()), 0)
            )
            again = asyncio.run(ScriptedEngine(engine.next_token).generate(request, 5))
            assert known.tokens == again.tokens
        assert memo.counts.generated == 0


def test_dropped_tokens_are_part_of_what_was_drawn() -> None:
    stream = iter([WORD, END, WORD, EOS, WORD, EOS])
    engine = ScriptedEngine(lambda prefix, seed: next(stream))
    done = run(engine, ("budget_forcing_wait1", Budget(8, 4)))
    row = rows([(("budget_forcing_wait1", Budget(8, 4)), done)]).row(0, named=True)
    assert row["response_ids"] == [WORD, 5, WORD, END, WORD, EOS]
    assert list(draws(row)) == [
        ("thinker", 0, (WORD, END)),
        ("thinker", 2, (WORD, EOS)),
        ("solver", 4, (WORD, EOS)),
    ]


def test_rows_that_an_engine_forced_itself_teach_nothing() -> None:
    class Native(ScriptedEngine):
        async def generate(self, request: Generate, seed: int) -> Completion:
            return Completion((WORD, END, WORD), (await super().generate(request, seed)).finish)

    cell = ("separate_native", Budget(1, 1))
    memo = ContinuationMemo(ScriptedEngine(token))
    learn({"base": memo}, rows([(cell, run(Native(token), cell))]), _Prompts(), PROBLEM, Sampling())  # type: ignore[arg-type]
    assert knows_nothing(memo, cell)


def test_rows_of_thought_templates_teach_nothing_to_a_sweep_that_has_none() -> None:
    budget = Budget(1, 1)
    done = run(ScriptedEngine(token), ("separate", budget))
    memo = ContinuationMemo(ScriptedEngine(token))
    learn({"base": memo}, rows([((REASONFLUX_ZERO, budget), done)]), _Prompts(), PROBLEM, Sampling())  # type: ignore[arg-type]
    assert knows_nothing(memo, ("separate", budget))


def knows_nothing(memo: ContinuationMemo, cell: Wanted) -> bool:
    """Whether the first token is drawn by the engine."""
    asyncio.run(memo.generate(Generate(prompt(*cell), 1, (), Sampling()), 0))
    return (memo.counts.generated, memo.counts.reused) == (1, 0)
