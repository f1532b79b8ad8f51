"""No budget at all: the model thinks and solves up to its context's end. The reference every curve tends to."""

from elastic_core.budget import Budget
from elastic_core.markers import Markers
from elastic_core.strategies.base import Draft, Rollout, Sampling, whole


def unconstrained(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> Rollout:
    """Raises:
    ValueError: when a budget other than unlimited is asked of it.
    """
    if budget != Budget(None, None):
        raise ValueError(f"unconstrained takes the budget unlimited, not {budget}")
    return (yield from whole(Draft(prompt_ids, sampling.logprobs), None, markers, sampling))
