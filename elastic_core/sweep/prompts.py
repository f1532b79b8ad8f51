"""The prompts of a sweep as token ids."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.markers import chat_prompt
from elastic_core.strategies import STRATEGIES, Strategy


class Prompts:
    """Prompts of a model, each encoded once."""

    def __init__(self, tokenizer: Any, strategies: Mapping[str, Strategy] = STRATEGIES) -> None:
        self.strategies = strategies
        # A copy: one tokenizer must not encode here while the writer's thread decodes with it.
        self._tokenizer = copy.deepcopy(tokenizer)
        self._known: dict[str, tuple[int, ...]] = {}

    def ids(self, problem: Problem, strategy: str, budget: Budget) -> tuple[int, ...]:
        """Prompt token ids of a cell's request."""
        text = self.strategies[strategy].prompt(problem.question, budget)
        if text not in self._known:
            self._known[text] = chat_prompt(self._tokenizer, text)
        return self._known[text]
