"""Budget forcing in s1's form (s1: Simple test-time scaling, section 3.1): exhausted thinking is closed with a phrase
that asks for the final answer. The answer has its own cap, s."""

from elastic_core.budget import Budget
from elastic_core.markers import Markers
from elastic_core.strategies.base import Draft, Rollout, Sampling, solve, think
from elastic_core.trajectory import ThinkFinish


def budget_forcing(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> Rollout:
    """At exhaustion: a newline, think-end, and "Final Answer:" on a new line. A thought that the model ended by itself
    gets think-end only."""
    draft = Draft(prompt_ids, sampling.logprobs)
    thinking = yield from think(draft, budget.think, markers, sampling)
    if thinking is ThinkFinish.FORCED:
        draft.force((*markers.final_answer_before, markers.think_end))
    elif thinking is ThinkFinish.END_OF_TEXT:
        draft.force((markers.think_end,))
    start = len(draft.tokens)
    if thinking is ThinkFinish.FORCED:
        draft.force(markers.final_answer_after)
    solution = yield from solve(draft, budget.solution, markers, sampling)
    return draft.finish(start, thinking, solution).check(budget)
