"""A token budget: t tokens of thinking and s tokens of solution (Elastic Reasoning, section 3.2: c = t + s)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass

UNLIMITED = "unlimited"
RANGE = ".."
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(k?)", re.IGNORECASE)


@dataclass(frozen=True)
class Budget:
    """Limits of sampled thinking tokens, the model's think-end included, and of sampled solution tokens, with
    end-of-text. None is unlimited, up to the model's context. Forced tokens count in neither."""

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
        return None if self.think is None or self.solution is None else self.think + self.solution

    @property
    def limited(self) -> int:
        """Tokens that the limited phases can take; an unlimited one takes the rest of the context, at least 1."""
        return (1 if self.think is None else self.think) + (1 if self.solution is None else self.solution)

    def __str__(self) -> str:
        limits = [UNLIMITED if limit is None else str(limit) for limit in (self.think, self.solution)]
        return UNLIMITED if limits == [UNLIMITED, UNLIMITED] else "+".join(limits)

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read "1k+1k", "512+1024", "unlimited+32" or "unlimited" (k = 1024 tokens, as in the paper). ValueError names
        the text and the forms."""
        compact = text.replace(" ", "").lower()
        if compact == UNLIMITED:
            return cls(None, None)
        try:
            think, solution = (None if part == UNLIMITED else _tokens(part) for part in compact.split("+"))
        except ValueError:
            expected = 'THINK+SOLUTION in tokens like "1k+1k", "48+32" or "unlimited"'
            if _AMOUNT.fullmatch(compact):
                expected = f'thinking + solution, like "{compact}+512"'
            raise ValueError(f'"{text}" is not a budget; expected {expected}') from None
        return cls(think, solution)


@dataclass(frozen=True)
class TokenRange:
    """Integers, in tokens, from `low` to `high`, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f'"{self.low}{RANGE}{self.high}" is an empty range; expected LOW{RANGE}HIGH')

    def draw(self, seed: int) -> int:
        """A uniform draw; equal seeds draw equal numbers."""
        return random.Random(seed).randint(self.low, self.high)

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}{RANGE}{self.high}"

    @classmethod
    def parse(cls, text: str) -> TokenRange:
        """Read "100..4000", or "1k" as the range of one number. ValueError names the text and the forms."""
        low, dots, high = text.replace(" ", "").partition(RANGE)
        try:
            first, last = _tokens(low), _tokens(high if dots else low)
        except ValueError:
            expected = 'one like "1k", or a range like "512..3k"'
            raise ValueError(f'"{text}" is not a number of tokens; expected {expected}') from None
        return cls(first, last)


@dataclass(frozen=True)
class TrainingBudget:
    """What rollouts are trained under: the solution is fixed, the thinking is fixed or drawn from a range."""

    think: TokenRange
    solution: int

    @property
    def largest(self) -> Budget:
        return Budget(self.think.high, self.solution)

    @property
    def fixed(self) -> Budget | None:
        """The one budget there is, None when it is drawn."""
        return self.largest if self.think.low == self.think.high else None

    def draw(self, seed: int) -> Budget:
        return Budget(self.think.draw(seed), self.solution)

    def __str__(self) -> str:
        return f"{self.think}+{self.solution}"

    @classmethod
    def parse(cls, text: str) -> TrainingBudget:
        """Read "1k+1k" or "512..3k+1k". ValueError names the text and the forms."""
        think, _, solution = text.partition("+")
        drawn = TokenRange.parse(think) if RANGE in think else None
        largest = Budget.parse(f"{drawn.high}+{solution}" if drawn else text)
        if largest.think is None or largest.solution is None:
            raise ValueError(
                f'"{text}" is not a training budget; expected limited tokens like "1k+1k", or "512{RANGE}3k+1k"'
            )
        return cls(drawn or TokenRange(largest.think, largest.think), largest.solution)


def parse_grid(texts: Iterable[str]) -> list[Budget]:
    """Budgets of a sweep in the given order; ValueError on an unreadable or repeated budget, or an empty grid."""
    grid = [Budget.parse(text) for text in texts]
    if not grid:
        raise ValueError('the budget grid is empty; expected at least one budget like "1k+1k"')
    for i, budget in enumerate(grid):
        if budget in grid[:i]:
            raise ValueError(f"budget {budget} appears twice in the grid")
    return grid


def _tokens(part: str) -> int:
    """1024 of "1k"; ValueError unless it is an integer of tokens."""
    match = _AMOUNT.fullmatch(part)
    tokens = float(match[1]) * (1024 if match[2] else 1) if match else 0.5
    if not tokens.is_integer():
        raise ValueError("not a number of tokens")
    return int(tokens)
