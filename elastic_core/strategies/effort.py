"""Effort levels in the place of budgets: a server that is asked in text is told how hard to think (`reasoning_effort`),
and nothing says how many tokens that is but its usage."""

from __future__ import annotations

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import Sampling, Strategy, StrategyRun

EFFORT = "effort"
"""What a sweep's settings call all levels together."""
STRATEGY = f"{EFFORT}_{{}}"
"""A level's strategy."""


def _decode(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    raise AssertionError("refused by the settings: effort is for models that are asked in text")


def _refusal(budget: Budget) -> str | None:
    return None if budget == Budget(None, None) else "the budget unlimited"


EFFORTS = {
    level: Strategy(_decode, _refusal, shares=False, thinks=False) for level in ("minimal", "low", "medium", "high")
}
