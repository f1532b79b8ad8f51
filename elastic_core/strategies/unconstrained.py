"""No budget at all: the model thinks and solves up to its context's end. The reference every curve tends to."""

from elastic_core.budget import Budget
from elastic_core.markers import Markers
from elastic_core.strategies.base import Draft, Sampling, Strategy, StrategyRun, single_pass


def unconstrained(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """The budget is unlimited, see `UNCONSTRAINED`."""
    return (yield from single_pass(Draft(prompt_ids, sampling.logprobs), None, markers, sampling))


UNCONSTRAINED = Strategy(
    unconstrained, expected_budget=lambda budget: None if budget == Budget(None, None) else "the budget unlimited"
)
