"""Every strategy, against engines that write arbitrary tokens: budgets hold to the token, and origins are true."""

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.seeds import request_seed
from elastic_core.strategies import STRATEGIES, Completion, Finish, Generate, Purpose, Sampling
from elastic_core.trajectory import BudgetExceeded, SolutionFinish, ThinkFinish, Trajectory
from tests.marks import markers, single
from tests.scripted import ScriptedEngine

START, END, EOS, NEWLINE, FINAL, ANSWER, WAIT, WORD = range(8)
MARKERS = markers(single(START, END, EOS), (NEWLINE,), (NEWLINE, FINAL, ANSWER), (WAIT,))
PROMPT = (WORD, WORD, START)
PHRASE = (NEWLINE, END, NEWLINE, FINAL, ANSWER)

streams = st.lists(st.sampled_from([END, EOS, NEWLINE, WORD, WORD, WORD]), max_size=40).map(tuple)
limits = st.none() | st.integers(0, 20)
budgets = st.builds(Budget, limits, st.none() | st.integers(1, 20))


def follow(tokens: tuple[int, ...], context: int = 64) -> ScriptedEngine:
    """An engine whose n-th sampled token is tokens[n], whatever was forced between; then words up to its context."""
    drawn = iter(tokens)
    return ScriptedEngine(lambda prefix, seed: next(drawn, WORD), context)


def run(name: str, budget: Budget, engine: ScriptedEngine, *, logprobs: bool = False) -> Trajectory:
    rollout = STRATEGIES[name].decode(PROMPT, budget, MARKERS, Sampling(logprobs=logprobs))
    return asyncio.run(drive(rollout, {"policy": engine}, seed=0))


@given(streams, budgets)
def test_separate_never_exceeds_either_phase(tokens: tuple[int, ...], budget: Budget) -> None:
    trajectory = run("separate", budget, follow(tokens))
    assert budget.think is None or trajectory.think_tokens <= budget.think
    assert budget.solution is None or trajectory.solution_tokens <= budget.solution


@given(streams, budgets)
def test_separate_forces_think_end_exactly_when_the_model_did_not_write_it(
    tokens: tuple[int, ...], budget: Budget
) -> None:
    trajectory = run("separate", budget, follow(tokens))
    assert trajectory.solution_start is not None
    assert trajectory.response_ids[trajectory.solution_start - 1] == END
    assert trajectory.response_ids[: trajectory.solution_start].count(END) == 1
    closed = trajectory.think_finish is ThinkFinish.CLOSED
    assert trajectory.forced_tokens == (0 if closed else 1)
    assert trajectory.forced[trajectory.solution_start - 1] is not closed


@given(streams, budgets)
def test_no_end_of_text_stays_inside_a_thought(tokens: tuple[int, ...], budget: Budget) -> None:
    for name in ("separate", "budget_forcing"):
        trajectory = run(name, budget, follow(tokens))
        assert EOS not in trajectory.response_ids[: trajectory.solution_start]
        assert EOS not in trajectory.response_ids[trajectory.solution_start : -1]


@given(streams, budgets)
def test_sampled_tokens_are_the_models_own_in_order(tokens: tuple[int, ...], budget: Budget) -> None:
    """What is not marked as forced is what the engine returned, but for the end-of-text removed from a thought."""
    for name in ("separate", "budget_forcing", "vanilla"):
        trajectory = run(name, budget, follow(tokens))
        sampled = [t for t, forced in zip(trajectory.response_ids, trajectory.forced, strict=True) if not forced]
        expected = [*tokens, *[WORD] * 64]
        if trajectory.think_finish is ThinkFinish.END_OF_TEXT and trajectory.solution_start is not None:
            del expected[expected.index(EOS)]
        assert sampled == expected[: len(sampled)]


@given(streams, st.integers(0, 20), st.integers(1, 20))
def test_budget_forcing_asks_for_the_final_answer_only_when_thinking_is_exhausted(
    tokens: tuple[int, ...], t: int, s: int
) -> None:
    trajectory = run("budget_forcing", Budget(t, s), follow(tokens))
    forced = tuple(i for i, f in zip(trajectory.response_ids, trajectory.forced, strict=True) if f)
    expected = {ThinkFinish.CLOSED: (), ThinkFinish.END_OF_TEXT: (END,), ThinkFinish.FORCED: PHRASE}
    assert forced == expected[trajectory.think_finish]
    assert trajectory.think_tokens <= t
    assert trajectory.solution_tokens <= s


@given(streams, st.integers(0, 20), st.integers(1, 20))
def test_vanilla_is_cut_at_the_sum_and_forces_nothing(tokens: tuple[int, ...], t: int, s: int) -> None:
    trajectory = run("vanilla", Budget(t, s), follow(tokens))
    assert trajectory.think_tokens + trajectory.solution_tokens == len(trajectory.response_ids) <= t + s
    assert trajectory.forced_tokens == 0
    assert (trajectory.solution_start is None) == (END not in trajectory.response_ids)


@given(streams, budgets, st.sampled_from([name for name, strategy in STRATEGIES.items() if strategy.shares]))
def test_no_strategy_writes_more_than_it_says(tokens: tuple[int, ...], budget: Budget, name: str) -> None:
    strategy = STRATEGIES[name]
    if strategy.expected_budget(budget) is None:
        assert run(name, budget, follow(tokens)).forced_tokens <= strategy.max_forced_tokens(MARKERS)


def test_a_marker_as_the_very_last_allowed_token_closes_the_thought() -> None:
    trajectory = run("separate", Budget(3, 4), follow((WORD, WORD, END, WORD, EOS)))
    assert (trajectory.think_tokens, trajectory.forced_tokens, trajectory.solution_tokens) == (3, 0, 2)
    assert trajectory.think_finish is ThinkFinish.CLOSED


def test_a_marker_one_token_too_late_is_forced() -> None:
    trajectory = run("separate", Budget(2, 4), follow((WORD, WORD, END, EOS)))
    assert trajectory.response_ids == (WORD, WORD, END, END, EOS)
    assert trajectory.forced == (False, False, True, False, False)


def test_no_thinking_budget_asks_nothing_of_the_engine_before_the_solution() -> None:
    engine = follow((WORD, EOS))
    trajectory = run("separate", Budget(0, 4), engine)
    assert [request.prefix for request in engine.requests] == [(*PROMPT, END)]
    assert trajectory.think_tokens == 0
    assert trajectory.think_finish is ThinkFinish.FORCED


def test_early_end_of_text_ends_the_thinking_and_the_solution_is_still_asked_for() -> None:
    trajectory = run("separate", Budget(8, 4), follow((WORD, EOS, WORD, EOS)))
    assert trajectory.response_ids == (WORD, END, WORD, EOS)
    assert trajectory.think_finish is ThinkFinish.END_OF_TEXT
    assert trajectory.solution_finish is SolutionFinish.STOP


def test_unlimited_budgets_end_where_the_context_ends() -> None:
    trajectory = run("separate", Budget(None, None), follow((), context=16))
    assert len(trajectory.prompt_ids) + trajectory.think_tokens == 16
    assert trajectory.solution_tokens == 0
    assert trajectory.solution_finish is SolutionFinish.LENGTH


def test_unconstrained_takes_no_budget_but_unlimited() -> None:
    assert run("unconstrained", Budget(None, None), follow((WORD, END, WORD, EOS))).think_tokens == 2
    assert STRATEGIES["unconstrained"].expected_budget(Budget(1, 1)) == "the budget unlimited"


@given(streams, budgets)
def test_logprobs_align_with_tokens_and_are_zero_where_forced(tokens: tuple[int, ...], budget: Budget) -> None:
    trajectory = run("separate", budget, follow(tokens), logprobs=True)
    assert trajectory.logprobs == tuple(0.0 if forced else -1.0 for forced in trajectory.forced)


class _Overrunning:
    async def generate(self, request: Generate, seed: int) -> Completion:
        return Completion((WORD,) * ((request.max_tokens or 0) + 1), Finish.LENGTH)


def test_an_engine_that_overruns_is_an_error_never_a_longer_answer() -> None:
    rollout = STRATEGIES["separate"].decode(PROMPT, Budget(4, 4), MARKERS, Sampling())
    with pytest.raises(BudgetExceeded):
        asyncio.run(drive(rollout, {"policy": _Overrunning()}, seed=0))


@given(st.integers(-(2**63), 2**63 - 1), st.lists(st.integers(0, 2**20), max_size=8))
def test_a_requests_seed_depends_on_sample_prefix_and_draw_only(seed: int, prefix: list[int]) -> None:
    request = Generate(tuple(prefix), 4, (EOS,), Sampling())
    drawn = request_seed(seed, request)
    assert 0 <= drawn < 2**31
    assert drawn == request_seed(seed, replace(request, max_tokens=None, stop=(), role="solver"))
    assert drawn != request_seed(seed, replace(request, prefix=(*prefix, 1)))
    assert drawn != request_seed(seed, replace(request, draw=1))


@pytest.mark.parametrize("name", sorted(name for name, strategy in STRATEGIES.items() if strategy.thinks))
def test_equal_seeds_give_equal_trajectories(name: str) -> None:
    def token(prefix: tuple[int, ...], seed: int) -> int:
        return random.Random(f"{prefix} {seed}").choice([END, EOS, WORD, WORD, WORD, WORD])

    budget = Budget(None, None) if name == "unconstrained" else Budget(6, 5)
    first, second = (run(name, budget, ScriptedEngine(token)) for _ in range(2))
    assert first == second


def test_no_two_strategies_have_one_purpose() -> None:
    purposes = [strategy.purpose for strategy in STRATEGIES.values() if strategy.purpose is not None]
    assert sorted(purposes) == sorted(Purpose)
