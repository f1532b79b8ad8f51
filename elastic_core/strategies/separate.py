"""Separate budgeting (Elastic Reasoning, section 3.2): thinking gets t tokens, the solution its own s."""

from elastic_core.budget import Budget
from elastic_core.markers import Markers
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
    """The same law from one request: the engine itself closes the thought at t (vLLM's `thinking_token_budget`). A
    cross-check of `separate`, whose two requests on token ids are the reference.

    The engine knows one cap for both phases, so unused thinking spills into the solution; what is over s is cut off.
    At a think-start of the model's own it would begin to count anew, in the thought or after it: the request ends
    there, and what is left of the budget is asked for as `separate` asks.
    """
    draft = Draft(prompt_ids, sampling.logprobs)
    cap = None if budget.total is None else budget.total + 1
    stop = (markers.think_start, *markers.end_of_text)
    response = yield Generate(prompt_ids, cap, stop, sampling, think_budget=budget.think)
    if markers.think_end not in response.tokens:
        draft.sampled(response)
        if response.tokens and response.tokens[-1] in markers.end_of_text:
            draft.drop_last()
            thinking = ThinkFinish.END_OF_TEXT
        else:
            thinking = yield from think(draft, _left(budget.think, len(draft.tokens)), markers, sampling)
        if thinking is not ThinkFinish.CLOSED:
            draft.force((markers.think_end,))
        start = len(draft.tokens)
        solution = yield from solve(draft, budget.solution, markers, sampling)
        return draft.finish(start, thinking, solution).check(budget)
    start = response.tokens.index(markers.think_end) + 1
    # A think-end of the model's own counts inside t; the one after t sampled tokens is the engine's.
    forced = budget.think is not None and start == budget.think + 1
    draft.sampled(response.part(0, start - forced))
    if forced:
        draft.force((markers.think_end,))
    end = len(response.tokens) if budget.solution is None else start + budget.solution
    draft.sampled(response.part(start, end))
    left = _left(budget.solution, len(draft.tokens) - start)
    if draft.tokens[-1] == markers.think_start and left != 0:
        solution = yield from solve(draft, left, markers, sampling)
    else:
        stopped = draft.tokens[-1] in markers.end_of_text
        solution = SolutionFinish.STOP if stopped else SolutionFinish.LENGTH
    return draft.finish(start, ThinkFinish.FORCED if forced else ThinkFinish.CLOSED, solution).check(budget)


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(0, limit - used)


SEPARATE_NATIVE = Strategy(separate_native, roles=("policy",), shares=False, max_forced_tokens=lambda markers: 1)
