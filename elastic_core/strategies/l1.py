"""L1 (Aggarwal and Welleck 2025, "L1: Controlling how long a reasoning model thinks"): the prompt asks for a length of
n = t + s tokens, and nothing but a generous cap enforces it. How well a model obeys is the signed length error."""

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import Draft, Sampling, Strategy, StrategyRun
from elastic_core.strategies.single_pass import single_pass

MAX_CAP = 8192
"""Tokens that L1-Max may use in its authors' evaluation, whatever n is."""


def exact_cap(budget: Budget) -> int:
    """Tokens that L1-Exact may use: 2n, as in its authors' evaluation."""
    return 2 * _length(budget)


def l1_exact(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """At most 2n tokens in one go."""
    cap = exact_cap(budget)
    trajectory = yield from single_pass(Draft(prompt_ids, sampling.logprobs), cap, markers, sampling)
    return trajectory.check_total(cap)


def l1_max(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """At most `MAX_CAP` tokens in one go."""
    return (yield from single_pass(Draft(prompt_ids, sampling.logprobs), MAX_CAP, markers, sampling)).check_total(
        MAX_CAP
    )


def _length(budget: Budget) -> int:
    assert budget.total is not None, "refused by the grid"
    return budget.total


def _refusal(budget: Budget) -> str | None:
    return None if budget.total is not None else 'a limited budget like "1k+1k", whose sum its prompt asks for'


EXACT = Strategy(l1_exact, _refusal, lambda budget: f"Think for {_length(budget)} tokens.")
MAX = Strategy(l1_max, _refusal, lambda budget: f"Think for maximum {_length(budget)} tokens.")
