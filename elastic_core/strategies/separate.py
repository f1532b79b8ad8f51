"""Separate budgeting (Elastic Reasoning, section 3.2): thinking gets t tokens, the solution s."""

from collections.abc import Generator
from dataclasses import replace

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import (
    CLOSES_ALL,
    Completion,
    Draft,
    Generate,
    Sampling,
    Strategy,
    StrategyRun,
    solve,
    think,
)
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory


def separate(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """When think-end has not come by t it is appended, and nothing else; unused thinking is not transferred."""
    draft = Draft(prompt_ids, sampling.logprobs)
    thinking = yield from think(draft, budget.think, markers, sampling)
    return (yield from answer(draft, thinking, budget, markers, sampling))


def answer(
    draft: Draft,
    finish: ThinkFinish | None,
    budget: Budget,
    markers: Markers,
    sampling: Sampling,
    meanwhile: Generate | None = None,
) -> Generator[Generate, Completion, Trajectory]:
    """Close a thought, and solve. `finish` is how the thought ended, None where it would go on; `meanwhile` as of
    `solve`."""
    if finish is not ThinkFinish.CLOSED:
        rest = markers.rest_of_end(draft.tokens) if finish is None else ()
        draft.force(rest or markers.closing(draft.tokens))
        finish = ThinkFinish.CLOSED if rest else finish or ThinkFinish.FORCED
    start = draft.solution_start(markers)
    solution = yield from solve(draft, budget.solution, markers, sampling, meanwhile)
    return draft.finish(start, finish, solution).check(budget)


SEPARATE = Strategy(
    separate, roles=("thinker", "solver"), max_forced_tokens=lambda markers: markers.max_forced, rules=CLOSES_ALL
)


def separate_native(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """The same distribution in one request: the engine closes the thought after t tokens and ends the solution after s,
    as `elastic serve` does. The thought is not prefilled again for its solution, and budgets share nothing.

    A model that ends its text inside its thought ends the request: a second one samples the solution.
    """
    draft = Draft(prompt_ids, sampling.logprobs)
    most = None if budget.total is None else budget.total + markers.max_forced
    response = yield Generate(prompt_ids, most, markers.end_of_text, sampling, budget=budget)
    thought, closing = response.tokens[: budget.think], tuple[int, ...]()
    start = markers.end(thought)
    thinking = ThinkFinish.FORCED if start is None else ThinkFinish.CLOSED
    if start is None and response.tokens == thought and thought[-1:] and thought[-1] in markers.end_of_text:
        thinking = ThinkFinish.END_OF_TEXT
    elif start is None and len(thought) == budget.think:
        closing = markers.closing(thought)
        # After t sampled tokens without an end they are the engine's. One that forgot them is found out by `check`.
        written = response.tokens[len(thought) : len(thought) + len(closing)]
        if written == closing[: len(written)]:
            start = len(thought) + len(closing)
            thinking = ThinkFinish.CLOSED if markers.rest_of_end(thought) else ThinkFinish.FORCED
    if start is None:
        draft.sampled(response)
        if thinking is ThinkFinish.END_OF_TEXT:
            draft.drop_last()
        return (yield from answer(draft, thinking, budget, markers, sampling))
    draft.sampled(response.part(0, start - len(closing)))
    draft.force(closing)
    # The token that ends a solution after s tokens is not part of it.
    end = len(response.tokens) if budget.solution is None else start + budget.solution
    draft.sampled(response.part(start, end))
    solution = SolutionFinish.STOP if draft.tokens[-1] in markers.end_of_text else SolutionFinish.LENGTH
    return draft.finish(start, thinking, solution).check(budget)


SEPARATE_NATIVE = replace(SEPARATE, decode=separate_native, roles=("policy",), shares=False)
