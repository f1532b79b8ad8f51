"""Strategies of a single pass, thinking and solution in one go.

Vanilla truncation cuts the response after t + s tokens wherever it stands. Unconstrained goes on to the context's end,
the reference that every curve tends to. L1 (Aggarwal and Welleck 2025, "L1: Controlling how long a reasoning model
thinks") asks for a length of n = t + s tokens in the prompt, and nothing but a generous cap enforces it; how well a
model obeys is the signed length error.
"""

from collections.abc import Callable

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import (
    FORCES_NOTHING,
    T_AND_S,
    Decode,
    Draft,
    Generate,
    Sampling,
    Strategy,
    StrategyRun,
    keeps_total,
)
from elastic_core.trajectory import SolutionFinish, ThinkFinish

MAX_CAP = 8192  # Tokens that L1-Max may use in its authors' evaluation, whatever n is.


def single_pass(cap: Callable[[Budget], int | None]) -> Decode:
    """At most `cap` tokens in one go; the first think-end separates thinking from solution."""

    def decode(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
        draft, limit = Draft(prompt_ids, sampling.logprobs), cap(budget)
        response = yield Generate(prompt_ids, limit, markers.end_of_text, sampling)
        draft.sampled(response)
        stopped = bool(response.tokens) and response.tokens[-1] in markers.end_of_text
        start = markers.end(response.tokens)
        if start is None:
            cut = ThinkFinish.END_OF_TEXT if stopped else ThinkFinish.LENGTH
            return draft.finish(None, cut, SolutionFinish.NOT_APPLICABLE).check_total(limit)
        solution = SolutionFinish.STOP if stopped else SolutionFinish.LENGTH
        return draft.finish(start, ThinkFinish.CLOSED, solution).check_total(limit)

    return decode


def _length(budget: Budget) -> int:
    assert budget.total is not None, "refused by the grid"
    return budget.total


def _summed(budget: Budget) -> str | None:
    return None if budget.total is not None else 'a limited budget like "1k+1k", whose sum its prompt asks for'


VANILLA = Strategy(single_pass(lambda budget: budget.total), rules=keeps_total())
UNCONSTRAINED = Strategy(
    single_pass(lambda budget: None),
    lambda budget: None if budget == Budget(None, None) else "the budget unlimited",
    rules=FORCES_NOTHING,
)
L1_EXACT = Strategy(
    single_pass(lambda budget: 2 * _length(budget)),
    _summed,
    lambda budget: f"Think for {_length(budget)} tokens.",
    rules=keeps_total(2 * T_AND_S, "2 (t + s)"),
)
"""Its cap is 2n, as in its authors' evaluation."""
L1_MAX = Strategy(
    single_pass(lambda budget: MAX_CAP),
    _summed,
    lambda budget: f"Think for maximum {_length(budget)} tokens.",
    rules=keeps_total(MAX_CAP, str(MAX_CAP)),
)
