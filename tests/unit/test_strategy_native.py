"""separate_native against an engine that keeps budgets: the law of `separate`, token for token."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.base import Engine, drive
from elastic_core.engines.budgets.processor import Progress
from elastic_core.strategies import STRATEGIES, Completion, Generate, Sampling
from elastic_core.trajectory import BudgetExceeded, SolutionFinish, ThinkFinish, Trajectory
from tests.marks import markers, single
from tests.scripted import ScriptedEngine

START, END, EOS, NEWLINE, WORD = range(5)
MARKERS = markers(single(START, END, EOS), (NEWLINE,), (NEWLINE,), (WORD,))
PROMPT = (WORD, START, WORD, END, WORD, START)

streams = st.lists(st.sampled_from([START, END, EOS, NEWLINE, WORD, WORD, WORD, WORD]), max_size=40).map(tuple)
limits = st.none() | st.integers(0, 20)
budgets = st.builds(Budget, limits, st.none() | st.integers(1, 20))
contexts = st.integers(len(PROMPT), 64)


@dataclass
class NativeEngine:
    """Its n-th sampled token is tokens[n], words after them. What is due under a request's budget it writes itself."""

    tokens: tuple[int, ...]
    context: int = 64
    requests: list[Generate] = field(default_factory=list)
    closed_at: list[int] = field(default_factory=list)
    cut_at: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._drawn: Iterator[int] = iter(self.tokens)

    async def generate(self, request: Generate, seed: int) -> Completion:
        progress = request.budget and Progress(request.budget, MARKERS)

        def next_token(prefix: tuple[int, ...], seed: int) -> int:
            forced = progress and progress.update(prefix[len(request.prefix) :]).token
            if forced is None:
                return next(self._drawn, WORD)
            (self.closed_at if forced == END else self.cut_at).append(len(prefix) - len(PROMPT))
            return forced

        self.requests.append(request)
        return await ScriptedEngine(next_token, self.context).generate(request, seed)


def run(name: str, budget: Budget, engine: Engine, *, logprobs: bool = False) -> Trajectory:
    rollout = STRATEGIES[name].decode(PROMPT, budget, MARKERS, Sampling(logprobs=logprobs))
    return asyncio.run(drive(rollout, {"policy": engine}, seed=0))


@given(streams, budgets, contexts)
def test_it_returns_what_separate_returns(tokens: tuple[int, ...], budget: Budget, context: int) -> None:
    native, reference = (
        run(name, budget, NativeEngine(tokens, context), logprobs=True) for name in ("separate_native", "separate")
    )
    assert native == reference


@given(streams, budgets, contexts)
def test_it_never_exceeds_either_phase(tokens: tuple[int, ...], budget: Budget, context: int) -> None:
    trajectory = run("separate_native", budget, NativeEngine(tokens, context))
    assert budget.think is None or trajectory.think_tokens <= budget.think
    assert budget.solution is None or trajectory.solution_tokens <= budget.solution


@given(st.lists(st.sampled_from([END, NEWLINE, WORD, WORD, WORD]), max_size=40).map(tuple), budgets)
def test_a_token_is_forced_exactly_where_the_engine_closed_the_thought(tokens: tuple[int, ...], budget: Budget) -> None:
    engine = NativeEngine(tokens, context=128)
    trajectory = run("separate_native", budget, engine)
    if budget.think is not None:
        assert [i for i, forced in enumerate(trajectory.forced) if forced] == engine.closed_at
        assert len(engine.requests) == 1
    assert (trajectory.think_finish is ThinkFinish.CLOSED) == (not any(trajectory.forced))


@given(streams, budgets, contexts)
def test_logprobs_align_with_tokens_and_are_zero_where_forced(
    tokens: tuple[int, ...], budget: Budget, context: int
) -> None:
    trajectory = run("separate_native", budget, NativeEngine(tokens, context), logprobs=True)
    assert trajectory.logprobs == tuple(0.0 if forced else -1.0 for forced in trajectory.forced)


def test_it_is_one_request_with_room_for_the_engines_own_token() -> None:
    engine = NativeEngine((NEWLINE, NEWLINE, WORD, EOS))
    trajectory = run("separate_native", Budget(2, 4), engine)
    assert [(request.max_tokens, request.budget) for request in engine.requests] == [(7, Budget(2, 4))]
    assert trajectory.response_ids == (NEWLINE, NEWLINE, END, WORD, EOS)
    assert trajectory.forced == (False, False, True, False, False)


def test_thinking_left_over_is_not_given_to_the_solution() -> None:
    engine = NativeEngine((END,))
    trajectory = run("separate_native", Budget(16, 3), engine)
    assert engine.cut_at == [4]
    assert (trajectory.think_tokens, trajectory.solution_tokens) == (1, 3)
    assert trajectory.solution_finish is SolutionFinish.LENGTH


def test_no_second_thought_is_closed_inside_the_solution() -> None:
    engine = NativeEngine((WORD, END, WORD, START, WORD, WORD, WORD, EOS))
    trajectory = run("separate_native", Budget(2, 16), engine)
    assert trajectory.response_ids == (WORD, END, WORD, START, WORD, WORD, WORD, EOS)
    assert (engine.closed_at, len(engine.requests)) == ([], 1)


def test_a_text_that_ends_inside_its_thought_is_solved_in_a_second_request() -> None:
    engine = NativeEngine((WORD, EOS, NEWLINE, EOS))
    trajectory = run("separate_native", Budget(4, 2), engine)
    assert trajectory.response_ids == (WORD, END, NEWLINE, EOS)
    assert trajectory.think_finish is ThinkFinish.END_OF_TEXT
    assert [request.budget for request in engine.requests] == [Budget(4, 2), None]


@given(st.integers(0, 8))
def test_an_engine_that_forgets_the_budget_is_an_error_never_a_longer_thought(t: int) -> None:
    with pytest.raises(BudgetExceeded):
        run("separate_native", Budget(t, 8), ScriptedEngine(lambda prefix, seed: WORD))
    late = iter((*(WORD,) * (t + 1), END))
    with pytest.raises(BudgetExceeded):
        run("separate_native", Budget(t, 8), ScriptedEngine(lambda prefix, seed: next(late, WORD)))
