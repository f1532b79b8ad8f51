"""Marks of several tokens, prefixes of each other among them: budgets hold to the token, in two requests and in one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.engines.budgets.parameters import additional_config, marks_of
from elastic_core.engines.budgets.processor import Progress
from elastic_core.models.marks import Marks
from elastic_core.serving.counting import Tally
from elastic_core.strategies import STRATEGIES, Completion, Finish, Generate, Sampling
from elastic_core.strategies.separate import separate_native
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory
from tests.marks import markers, single
from tests.scripted import ScriptedEngine

EOS, WORD, OPEN, THINK, SEP, CLOSE, ANSWER, ASKED, CALL = range(9)
PROMPT, CONTEXT = (ASKED, ASKED), 64

sequences = st.lists(st.sampled_from([WORD, OPEN, THINK, SEP, CLOSE, CALL]), min_size=1, max_size=3).map(tuple)
ends = st.lists(sequences, min_size=1, max_size=3, unique=True).map(tuple)


@st.composite
def marks(draw: st.DrawFn) -> Marks:
    end = draw(ends)
    close = (*draw(st.sampled_from(end)), *draw(st.sampled_from([(), (ANSWER,), (ANSWER, SEP)])))
    answer, calls = draw(st.sampled_from([close, (), (ANSWER,)])), draw(st.just(()) | st.just(((CALL,),)) | ends)
    return Marks(draw(sequences), end, close, answer, (EOS,), calls=calls)


streams = st.lists(st.sampled_from([EOS, WORD, OPEN, THINK, SEP, CLOSE, SEP, CLOSE, CALL]), max_size=30)
limits = st.none() | st.integers(0, 12)
budgets = st.builds(Budget, limits, st.none() | st.integers(1, 8))


def literal(stream: list[int], budget: Budget, marks: Marks) -> tuple[list[int], list[bool], int, ThinkFinish]:
    """Separate budgeting as one would say it: response, what was forced of it, where the solution begins, how the
    thought ended."""
    drawn, response, forced = iter(stream), list[int](), list[bool]()

    def room() -> bool:
        return len(PROMPT) + len(response) < CONTEXT

    finish, called = None, 0
    while finish is None and len(response) != budget.think and room():
        response.append(next(drawn, WORD))
        if any(tuple(response[-len(end) :]) == end for end in marks.think_ends):
            finish = ThinkFinish.CLOSED
        elif any(tuple(response[-len(call) :]) == call for call in marks.calls):
            finish, called = ThinkFinish.CLOSED, 1  # The call is solution, from the last token of its mark on.
        elif response[-1] == EOS:
            response.pop()
            finish = ThinkFinish.END_OF_TEXT
    forced = [False] * len(response)
    if finish is not ThinkFinish.CLOSED:
        begun = [
            (size, end)
            for end in marks.think_ends
            for size in range(1, len(end))
            if len(response) >= size and tuple(response[-size:]) == end[:size]
        ]
        if begun:
            size, end = max(begun, key=lambda each: (each[0], -marks.think_ends.index(each[1])))
            rest = end[size:]
            finish = finish or ThinkFinish.CLOSED
        elif not response:
            rest = marks.answer
        elif tuple(response) == marks.think_start[: len(response)] != marks.think_start:
            rest = (*marks.think_start[len(response) :], *marks.close)
        else:
            rest = marks.close
        response += rest
        forced += [True] * len(rest)
    start = len(response) - called
    while room() and (budget.solution is None or len(response) - start < budget.solution):
        response.append(next(drawn, WORD))
        if response[-1] == EOS:
            break
    forced += [False] * (len(response) - len(forced))
    return response, forced, start, finish or ThinkFinish.FORCED


def follow(stream: list[int]) -> ScriptedEngine:
    drawn = iter(stream)
    return ScriptedEngine(lambda prefix, seed: next(drawn, WORD), CONTEXT)


def run(name: str, stream: list[int], budget: Budget, marks: Marks) -> Trajectory:
    known = markers(marks, (WORD,), (WORD, ANSWER), (WORD,), template_opens_thinking=False)
    rollout = STRATEGIES[name].decode(PROMPT, budget, known, Sampling())
    return asyncio.run(drive(rollout, {"policy": follow(stream)}, seed=0))


def one_pass(stream: list[int], budget: Budget, marks: Marks) -> list[int]:
    """What a model and the budget processor write together."""
    drawn, output, progress = iter(stream), list[int](), Progress.of(budget, marks, PROMPT)
    due: int | None = 0
    while len(output) < CONTEXT - len(PROMPT):
        token = None
        if due == len(output):
            token, wait, _ = progress.update(output)
            due = None if wait is None else len(output) + wait
        output.append(next(drawn, WORD) if token is None else token)
        if output[-1] == EOS:
            break
    return output


@given(marks(), streams, budgets)
def test_separate_is_what_one_would_say_it_is(marks: Marks, stream: list[int], budget: Budget) -> None:
    found = run("separate", stream, budget, marks)
    expected = literal(stream, budget, marks)
    assert (list(found.response_ids), list(found.forced), found.solution_start, found.think_finish) == expected
    assert found.forced_tokens <= marks.max_forced
    called = expected[3] is ThinkFinish.CLOSED and marks.call_before(found.response_ids, expected[2] + 1)
    assert marks.mark_before(found.response_ids, expected[2]) or called or expected[2] == 0


@given(marks(), streams, budgets)
def test_every_strategy_keeps_its_budget_and_its_origins(marks: Marks, stream: list[int], budget: Budget) -> None:
    for name in ("separate", "budget_forcing", "budget_forcing_wait1", "budget_forcing_wait2"):
        found = run(name, stream, budget, marks).check(budget)
        dropped = [token for _, token in found.dropped]
        kept = [token for token, forced in zip(found.response_ids, found.forced, strict=True) if not forced]
        drawn = [*stream, *[WORD] * CONTEXT]
        assert sorted([*kept, *dropped]) == sorted(drawn[: len(kept) + len(dropped)])
    assert run("vanilla", stream, budget, marks).check_total(budget.total)


@given(marks(), streams, budgets)
def test_one_pass_writes_what_two_requests_write(marks: Marks, stream: list[int], budget: Budget) -> None:
    """Up to end-of-text inside a thought, which ends a response here and a thought there."""
    expected, output = run("separate", stream, budget, marks), one_pass(stream, budget, marks)
    if expected.think_finish is ThinkFinish.END_OF_TEXT:
        assert output[-1] == EOS and tuple(output[:-1]) == expected.response_ids[: len(output) - 1]
        return
    written = output
    if expected.solution_finish is SolutionFinish.LENGTH and output[-1] == EOS:
        written = output[:-1]  # It cut the solution.
    assert tuple(written) == expected.response_ids[: len(written)]
    assert len(written) >= min(len(expected.response_ids), CONTEXT - len(PROMPT) - marks.max_forced)


class Keeping:
    """An engine that keeps budgets, which a second request has none of."""

    def __init__(self, stream: list[int], marks: Marks) -> None:
        self.stream, self.marks = stream, marks

    async def generate(self, request: Generate, seed: int) -> Completion:
        if request.budget is None:
            drawn = self.stream
            limit = CONTEXT - len(request.prefix)
            limit = limit if request.max_tokens is None else min(limit, request.max_tokens)
            tokens = [*drawn, *[WORD] * CONTEXT][:limit]
            end = tokens.index(EOS) + 1 if EOS in tokens else len(tokens)
            return Completion(tuple(tokens[:end]), Finish.STOP if EOS in tokens[:end] else Finish.LENGTH)
        output = one_pass(self.stream, request.budget, self.marks)[: request.max_tokens]
        self.stream = self.stream[len(output) :]
        return Completion(tuple(output), Finish.STOP if output[-1:] == [EOS] else Finish.LENGTH)


@given(marks(), streams, st.builds(Budget, st.integers(0, 12), st.integers(1, 8)))
def test_one_request_is_read_as_the_trajectory_of_two(marks: Marks, stream: list[int], budget: Budget) -> None:
    known = markers(marks, template_opens_thinking=False)
    rollout = separate_native(PROMPT, budget, known, Sampling())
    found = asyncio.run(drive(rollout, {"policy": Keeping(stream, marks)}, seed=0))
    expected = run("separate", stream, budget, marks)
    if expected.think_finish is not ThinkFinish.END_OF_TEXT:
        assert found == expected
    else:
        assert (found.think_finish, found.solution_start) == (expected.think_finish, expected.solution_start)


@given(marks(), streams, budgets, st.integers(1, 5))
def test_the_server_counts_what_a_trajectory_counts(marks: Marks, stream: list[int], budget: Budget, size: int) -> None:
    expected, output = run("separate", stream, budget, marks), one_pass(stream, budget, marks)
    tally = Tally(budget, marks, None)
    for at in range(0, len(output), size):
        tally.add(output[at : at + size])
    if expected.think_finish is ThinkFinish.END_OF_TEXT or len(output) == CONTEXT - len(PROMPT):
        return
    assert (tally.thinking, tally.forced) == (expected.think_tokens, expected.forced_tokens)
    assert tally.solution == expected.solution_tokens
    assert tally.thought == (expected.think_finish if expected.solution_start else "closed")


CALLING = replace(single(OPEN, CLOSE, EOS), calls=((CALL,), (SEP, THINK)))
CALLED = (WORD, CALL, OPEN, WORD, WORD, CLOSE, EOS)
"""A call inside a thought, and a thought inside the call."""


@pytest.mark.parametrize("name", ["separate", "separate_native"])
@pytest.mark.parametrize(
    ("stream", "budget", "response", "start"),
    [
        (CALLED, Budget(4, None), CALLED, 1),  # No think-end inside the call.
        (CALLED, Budget(4, 3), CALLED[:4], 1),
        (CALLED, Budget(4, 1), CALLED[:2], 1),  # The call's first token is all of s.
        (CALLED, Budget(2, 2), CALLED[:3], 1),
        (CALLED, Budget(1, 2), (WORD, CLOSE, CALL, OPEN), 2),
        ((CALL, WORD, EOS), Budget(4, 9), (CALL, WORD, EOS), 0),
        ((WORD, SEP, THINK, WORD), Budget(9, 2), (WORD, SEP, THINK, WORD), 2),
        ((WORD, SEP, THINK, WORD), Budget(2, 2), (WORD, SEP, CLOSE, THINK, WORD), 3),  # A mark that was cut is none.
    ],
)
def test_a_call_inside_a_thought_ends_it_and_is_solution(
    name: str, stream: tuple[int, ...], budget: Budget, response: tuple[int, ...], start: int
) -> None:
    known = markers(CALLING)
    engine = follow(list(stream)) if name == "separate" else Keeping(list(stream), CALLING)
    rollout = STRATEGIES[name].decode(PROMPT, budget, known, Sampling())
    found = asyncio.run(drive(rollout, {"policy": engine}, seed=0))
    assert (found.response_ids, found.solution_start) == (response, start)
    assert (found.think_tokens + found.forced_tokens, found.solution_tokens) == (start, len(response) - start)


HARMONY = Marks((10, 11, 12), ((13,),), (13, 14, 15, 10, 16, 12), (10, 16, 12), (EOS, 17))
"""<|channel|> analysis <|message|>; <|end|>; <|start|> assistant <|channel|> final <|message|>; <|return|> <|call|>"""


@pytest.mark.parametrize(
    ("thought", "closing"),
    [
        ((), (10, 16, 12)), ((10,), (11, 12, *HARMONY.close)), ((10, 11), (12, *HARMONY.close)),
        ((10, 11, 12), HARMONY.close), ((10, 11, 12, WORD), HARMONY.close),
    ],
)  # fmt: skip
def test_a_channel_that_was_begun_is_opened_before_it_is_closed(
    thought: tuple[int, ...], closing: tuple[int, ...]
) -> None:
    assert HARMONY.closing(thought) == closing


@pytest.mark.parametrize(
    ("stream", "written"),
    [
        ([], (10, 16, 12)),
        ([10], (10, 11, 12, WORD, *HARMONY.close)),
        ([10, 11, 12, ASKED], (10, 11, 12, ASKED, WORD, *HARMONY.close)),
    ],
)
def test_what_s1_writes_before_the_end_stands_inside_the_thought(stream: list[int], written: tuple[int, ...]) -> None:
    found = run("budget_forcing", stream, Budget(len(stream), 1), HARMONY)
    assert found.response_ids[: found.solution_start] == written
    assert found.response_ids[found.solution_start :][:2] == (WORD, ANSWER)


KIMI = Marks((OPEN, THINK, SEP), ((CLOSE, THINK, SEP),), (CLOSE, THINK, SEP), (CLOSE, THINK, SEP), (EOS,))


def test_a_plain_last_token_does_not_end_a_thought() -> None:
    """Kimi's marks end in a token that also stands elsewhere: the thought goes on in a request of its own."""
    found = run("separate", [OPEN, THINK, SEP, WORD, SEP, WORD, CLOSE, THINK, SEP, ANSWER, EOS], Budget(20, 5), KIMI)
    assert (found.solution_start, found.forced_tokens, found.think_finish) == (9, 0, ThinkFinish.CLOSED)
    cut = run("separate", [OPEN, THINK, SEP, WORD, CLOSE, WORD], Budget(5, 1), KIMI)
    assert cut.response_ids == (OPEN, THINK, SEP, WORD, CLOSE, THINK, SEP, WORD)
    assert (cut.think_tokens, cut.forced_tokens, cut.think_finish) == (5, 2, ThinkFinish.CLOSED)


ONE = single(OPEN, CLOSE, EOS)


@pytest.mark.parametrize(
    ("marks", "prompt", "closed"),
    [
        (ONE, (), False),
        (ONE, (WORD, OPEN, WORD), False),
        (ONE, (WORD, OPEN, WORD, CLOSE, WORD), True),
        (ONE, (OPEN, WORD, CLOSE, WORD, EOS, WORD), False),  # An earlier turn's; the model opens the next itself.
        (ONE, (WORD, CLOSE, EOS, OPEN), False),  # A user who writes think-end.
        (KIMI, (WORD,), False),
        (KIMI, (OPEN, THINK, SEP, CLOSE, THINK, SEP), True),
        (KIMI, (CLOSE, THINK, SEP, EOS, WORD), False),
        (KIMI, (CLOSE, THINK, SEP, OPEN, THINK, SEP), False),
        (KIMI, (CLOSE, THINK, WORD, SEP), False),
        (CALLING, (CALL, WORD), False),  # A system prompt that shows how to call.
        (CALLING, (OPEN, WORD, CALL, WORD), True),  # An answer that is to be continued.
        (CALLING, (OPEN, WORD, CALL, WORD, EOS, WORD), False),
        (CALLING, (CALL, WORD, OPEN, WORD), False),
    ],
)
def test_a_prompt_may_have_closed_its_thought(marks: Marks, prompt: tuple[int, ...], closed: bool) -> None:
    assert marks.is_closed(prompt) is closed


@given(marks())
def test_an_engine_is_told_them_whole(marks: Marks) -> None:
    class Config:
        speculative_config = None
        additional_config = additional_config(marks)

    assert marks_of(Config) == marks
    assert Marks.of(markers(marks)) == marks


def test_of_one_token_they_force_one() -> None:
    assert (ONE.max_forced, ONE.closing(()), ONE.closing((WORD,)), ONE.stop) == (1, (CLOSE,), (CLOSE,), (CLOSE,))
    assert replace(ONE, think_start=(), think_ends=(), close=(), answer=()).thinks is False
