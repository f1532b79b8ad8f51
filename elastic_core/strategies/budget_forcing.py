"""Budget forcing (Muennighoff et al. 2025, "s1: Simple test-time scaling", section 3.1), in both published forms:
exhausted thinking is closed with a phrase that asks for the final answer, and thinking that ends early is prolonged by
"Wait". The answer is limited to s."""

from collections.abc import Generator, Sequence

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import (
    CLOSES_ONCE,
    KEEPS_PHASES,
    Completion,
    Draft,
    Generate,
    Sampling,
    Strategy,
    StrategyRun,
    solve,
    think,
)
from elastic_core.trajectory import ThinkFinish


def with_waits(num_waits: int) -> Strategy:
    """At exhaustion: a newline, think-end, and "Final Answer:" on a new line. The first `num_waits` times that the
    model ends its thought, "Wait" takes the place of its think-end; after that the thought gets think-end only.

    All rounds together get t sampled tokens, the ends that were taken out included. s1's program gives every round
    the full budget and clips afterwards; its README decrements, as here.
    """

    def decode(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
        draft = Draft(prompt_ids, sampling.logprobs)
        thinking = yield from _think(draft, num_waits, budget.think, markers, sampling)
        if thinking is ThinkFinish.FORCED:
            draft.force(exhausted(draft.tokens, markers))
        elif thinking is ThinkFinish.END_OF_TEXT:
            draft.force(markers.closing(draft.tokens))
        start = draft.solution_start(markers)
        if thinking is ThinkFinish.FORCED:
            draft.force(markers.final_answer_after)
        solution = yield from solve(draft, budget.solution, markers, sampling)
        return draft.finish(start, thinking, solution).check(budget)

    def max_forced_tokens(markers: Markers) -> int:
        phrase = len(markers.final_answer_before) + markers.max_forced + len(markers.final_answer_after)
        return num_waits * len(markers.wait) + phrase

    prolongs, rules = (True, KEEPS_PHASES) if num_waits else (False, CLOSES_ONCE)
    return Strategy(
        decode, roles=("thinker", "solver"), prolongs=prolongs, max_forced_tokens=max_forced_tokens, rules=rules
    )


def exhausted(thought: Sequence[int], markers: Markers) -> tuple[int, ...]:
    """Tokens that s1 writes to end a thought at the end of its budget."""
    closing = markers.closing(thought)
    at = len(closing) - len(markers.close)
    # The newline stands inside the thought, also where the opening has to be completed first.
    before = markers.final_answer_before if closing[at:] == markers.close else ()
    return (*closing[:at], *before, *closing[at:])


def _think(
    draft: Draft, num_waits: int, limit: int | None, markers: Markers, sampling: Sampling
) -> Generator[Generate, Completion, ThinkFinish]:
    left = limit
    for _ in range(num_waits):
        begin, before = len(draft.tokens), len(draft.dropped)
        thinking = yield from think(draft, left, markers, sampling)
        if thinking is ThinkFinish.FORCED:
            return thinking
        if left is not None:
            left -= draft.forced[begin:].count(False) + len(draft.dropped) - before
        if thinking is ThinkFinish.CLOSED:
            draft.drop_last(markers.mark_before(draft.tokens, len(draft.tokens)))
        draft.force(markers.wait)
    return (yield from think(draft, left, markers, sampling))
