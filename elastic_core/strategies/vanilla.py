"""Vanilla truncation: one response, cut after t + s tokens wherever it stands."""

from elastic_core.budget import Budget
from elastic_core.markers import Markers
from elastic_core.strategies.base import Draft, Rollout, Sampling, whole
from elastic_core.trajectory import BudgetExceeded


def vanilla(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> Rollout:
    """The budget binds the sum of both phases only."""
    trajectory = yield from whole(Draft(prompt_ids, sampling.logprobs), budget.total, markers, sampling)
    if budget.total is not None and len(trajectory.response_ids) > budget.total:
        raise BudgetExceeded(f"{len(trajectory.response_ids)} sampled tokens under a budget of {budget}")
    return trajectory
