"""Strategies of a single pass, thinking and solution in one go: vanilla truncation cuts the response after t + s tokens
wherever it stands; unconstrained goes on to the context's end, the reference that every curve tends to."""

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import Draft, Generate, Sampling, Strategy, StrategyRun
from elastic_core.trajectory import SolutionFinish, ThinkFinish


def single_pass(draft: Draft, limit: int | None, markers: Markers, sampling: Sampling) -> StrategyRun:
    """Sample thinking and solution in one go of at most `limit` tokens, and tell them apart at the first think-end."""
    response = yield Generate(draft.prefix, limit, markers.end_of_text, sampling)
    draft.sampled(response)
    stopped = bool(response.tokens) and response.tokens[-1] in markers.end_of_text
    if markers.think_end not in response.tokens:
        cut = ThinkFinish.END_OF_TEXT if stopped else ThinkFinish.LENGTH
        return draft.finish(None, cut, SolutionFinish.NOT_APPLICABLE)
    start = response.tokens.index(markers.think_end) + 1
    return draft.finish(start, ThinkFinish.CLOSED, SolutionFinish.STOP if stopped else SolutionFinish.LENGTH)


def vanilla(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """The budget binds the sum of both phases only."""
    trajectory = yield from single_pass(Draft(prompt_ids, sampling.logprobs), budget.total, markers, sampling)
    return trajectory.check_total(budget.total)


def unconstrained(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """The budget is unlimited, see `UNCONSTRAINED`."""
    return (yield from single_pass(Draft(prompt_ids, sampling.logprobs), None, markers, sampling))


VANILLA = Strategy(vanilla)
UNCONSTRAINED = Strategy(
    unconstrained, expected_budget=lambda budget: None if budget == Budget(None, None) else "the budget unlimited"
)
