"""Separate budgeting (Elastic Reasoning, section 3.2): thinking gets t tokens, the solution its own s."""

from elastic_core.budget import Budget
from elastic_core.markers import Markers
from elastic_core.strategies.base import Draft, Rollout, Sampling, solve, think
from elastic_core.trajectory import ThinkFinish


def separate(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> Rollout:
    """When think-end has not come by t it is appended, and nothing else; unused thinking is not transferred."""
    draft = Draft(prompt_ids, sampling.logprobs)
    thinking = yield from think(draft, budget.think, markers, sampling)
    if thinking is not ThinkFinish.CLOSED:
        draft.force((markers.think_end,))
    start = len(draft.tokens)
    solution = yield from solve(draft, budget.solution, markers, sampling)
    return draft.finish(start, thinking, solution).check(budget)
