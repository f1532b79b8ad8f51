"""Decoding strategies by name. Adding one is a file beside these and a line in STRATEGIES."""

from elastic_core.strategies.base import Completion, Finish, Generate, Rollout, Sampling, Strategy
from elastic_core.strategies.budget_forcing import budget_forcing
from elastic_core.strategies.separate import separate
from elastic_core.strategies.unconstrained import unconstrained
from elastic_core.strategies.vanilla import vanilla

STRATEGIES: dict[str, Strategy] = {
    "vanilla": vanilla,
    "budget_forcing": budget_forcing,
    "separate": separate,
    "unconstrained": unconstrained,
}

__all__ = ["STRATEGIES", "Completion", "Finish", "Generate", "Rollout", "Sampling", "Strategy"]
