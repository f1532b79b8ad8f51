"""Vanilla truncation: one response, cut after t + s tokens wherever it stands."""

from elastic_core.budget import Budget
from elastic_core.markers import Markers
from elastic_core.strategies.base import Draft, Sampling, Strategy, StrategyRun, single_pass


def vanilla(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """The budget binds the sum of both phases only."""
    trajectory = yield from single_pass(Draft(prompt_ids, sampling.logprobs), budget.total, markers, sampling)
    return trajectory.check_total(budget.total)


VANILLA = Strategy(vanilla)
