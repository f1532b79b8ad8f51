"""Separate budgeting (Elastic Reasoning, section 3.2): thinking gets t tokens, the solution its own s."""

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import Draft, Generate, Sampling, Strategy, StrategyRun, solve, think
from elastic_core.trajectory import SolutionFinish, ThinkFinish


def separate(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """When think-end has not come by t it is appended, and nothing else; unused thinking is not transferred."""
    draft = Draft(prompt_ids, sampling.logprobs)
    thinking = yield from think(draft, budget.think, markers, sampling)
    if thinking is not ThinkFinish.CLOSED:
        draft.force((markers.think_end,))
    start = len(draft.tokens)
    solution = yield from solve(draft, budget.solution, markers, sampling)
    return draft.finish(start, thinking, solution).check(budget)


SEPARATE = Strategy(separate, roles=("thinker", "solver"), max_forced_tokens=lambda markers: 1)


def separate_native(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """The same law in one request: the engine closes the thought after t tokens and ends the solution after s, as
    `elastic serve` does. A thought is not read in again for its solution, and nothing is shared between budgets.

    Where the model ends its text inside its thought the request is over: the solution is asked for as `separate` does.
    """
    draft = Draft(prompt_ids, sampling.logprobs)
    most = None if budget.total is None else budget.total + 1
    response = yield Generate(prompt_ids, most, markers.end_of_text, sampling, budget=budget)
    if markers.think_end in response.tokens:
        start = response.tokens.index(markers.think_end) + 1
        # A think-end of the model's own counts inside t; the one after t sampled tokens is the engine's.
        forced = budget.think is not None and start == budget.think + 1
        draft.sampled(response.part(0, start - forced))
        if forced:
            draft.force((markers.think_end,))
        # What ends a solution after s tokens is no part of it.
        end = len(response.tokens) if budget.solution is None else start + budget.solution
        draft.sampled(response.part(start, end))
        stopped = draft.tokens[-1] in markers.end_of_text
        thinking = ThinkFinish.FORCED if forced else ThinkFinish.CLOSED
        solution = SolutionFinish.STOP if stopped else SolutionFinish.LENGTH
    else:
        draft.sampled(response)
        thinking = ThinkFinish.FORCED
        if draft.tokens and draft.tokens[-1] in markers.end_of_text:
            draft.drop_last()
            thinking = ThinkFinish.END_OF_TEXT
        draft.force((markers.think_end,))
        start = len(draft.tokens)
        solution = yield from solve(draft, budget.solution, markers, sampling)
    return draft.finish(start, thinking, solution).check(budget)


SEPARATE_NATIVE = Strategy(separate_native, roles=("policy",), shares=False, max_forced_tokens=lambda markers: 1)
