"""NoThinking (Ma et al. 2025, "Reasoning models can be effective without thinking") as a strategy by import path."""

import polars as pl

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import Draft, Sampling, Strategy, StrategyRun, solve
from elastic_core.trajectory import ThinkFinish


def decode(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """The thought is closed before its first token; the solution gets t + s tokens."""
    draft = Draft(prompt_ids, sampling.logprobs)
    draft.force(markers.closing(()))
    start = len(draft.tokens)
    solution = yield from solve(draft, budget.total, markers, sampling)
    return draft.finish(start, ThinkFinish.FORCED, solution).check_total(budget.total)


no_thinking = Strategy(
    decode,
    roles=("thinker", "solver"),
    max_forced_tokens=lambda markers: markers.max_forced,
    rules={"nothing is thought": pl.col("think_tokens") == 0},
)
