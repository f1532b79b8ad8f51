"""A token budget: t tokens of thinking and s tokens of solution (Elastic Reasoning, section 3.1: c = t + s)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

UNLIMITED = "unlimited"
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(k?)", re.IGNORECASE)


@dataclass(frozen=True)
class Budget:
    """Thinking and solution limits in tokens; None means unlimited (up to the model's context).

    `think` counts sampled thinking tokens including a think-end the model wrote itself; `solution` counts
    sampled solution tokens including end-of-text. Forced tokens count in neither.
    """

    think: int | None
    solution: int | None

    def __post_init__(self) -> None:
        if self.think is not None and self.think < 0:
            raise ValueError(f"thinking budget {self.think} is negative; expected 0 or more tokens")
        if self.solution is not None and self.solution < 1:
            raise ValueError(f"solution budget {self.solution} leaves no room for an answer; expected 1 or more tokens")

    @property
    def total(self) -> int | None:
        """t + s in tokens, None when either is unlimited."""
        if self.think is None or self.solution is None:
            return None
        return self.think + self.solution

    def __str__(self) -> str:
        if self.think is None and self.solution is None:
            return UNLIMITED
        return f"{_show(self.think)}+{_show(self.solution)}"

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read "1k+1k", "512+1024", "unlimited+32" or "unlimited" (k = 1024 tokens, as in the paper).

        Raises:
            ValueError: naming the text and the accepted forms.
        """
        compact = text.replace(" ", "")
        if compact.lower() == UNLIMITED:
            return cls(None, None)
        parts = compact.split("+")
        if len(parts) != 2:
            raise ValueError(_expected(text))
        return cls(_amount(parts[0], text), _amount(parts[1], text))


def parse_grid(texts: Iterable[str]) -> list[Budget]:
    """Budgets of a sweep in the given order, duplicates refused.

    Raises:
        ValueError: on an unreadable or repeated budget, or an empty grid.
    """
    grid = [Budget.parse(text) for text in texts]
    if not grid:
        raise ValueError('the budget grid is empty; expected at least one budget like "1k+1k"')
    for i, budget in enumerate(grid):
        if budget in grid[:i]:
            raise ValueError(f"budget {budget} appears twice in the grid")
    return grid


def _show(limit: int | None) -> str:
    return UNLIMITED if limit is None else str(limit)


def _amount(part: str, whole: str) -> int | None:
    if part.lower() == UNLIMITED:
        return None
    match = _AMOUNT.fullmatch(part)
    tokens = float(match[1]) * (1024 if match[2] else 1) if match else 0.5
    if not tokens.is_integer():
        raise ValueError(_expected(whole))
    return int(tokens)


def _expected(text: str) -> str:
    return f'"{text}" is not a budget; expected THINK+SOLUTION in tokens like "1k+1k", "48+32" or "unlimited"'
