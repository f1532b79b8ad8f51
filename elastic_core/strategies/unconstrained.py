"""No budget at all: the model thinks and solves up to its context's end. The reference every curve tends to."""

from elastic_core.budget import Budget
from elastic_core.markers import Markers
from elastic_core.strategies.base import Draft, Rollout, Sampling, Strategy, whole


def unconstrained(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> Rollout:
    """The budget is unlimited, see `UNCONSTRAINED`."""
    return (yield from whole(Draft(prompt_ids, sampling.logprobs), None, markers, sampling))


UNCONSTRAINED = Strategy(
    unconstrained, refusal=lambda budget: None if budget == Budget(None, None) else "the budget unlimited"
)
