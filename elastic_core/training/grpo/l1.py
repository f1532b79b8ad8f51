"""L1's training (Aggarwal and Welleck 2025, "L1: Controlling how long a reasoning model thinks", section 3): the prompt
asks for n tokens, and the reward weighs how far the response is from n. Thinking and solution both count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from elastic_core.budget import Budget, TokenRange
from elastic_core.strategies import STRATEGIES

Form = Literal["exact", "max"]

PROMPT_TOKENS = 32
"""Room in the context for the sentence that asks, in tokens."""
_MAX_OFFSET = 0.5
"""L1-Max's delta: what a right answer of exactly n tokens is worth."""


class L1Parameters(BaseModel):
    """Which length is asked for, and what missing it costs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    form: Form = Field(description='Ask for n tokens, or for at most n: "exact" or "max".')
    lengths: str = Field(
        "100..4000", description="Tokens asked for, n: drawn from this range per problem and step, from train.seed."
    )
    penalty: float = Field(3e-4, gt=0, lt=1, description="Reward lost per token away from n (alpha).")

    @field_validator("lengths")
    @classmethod
    def _at_least_one(cls, text: str) -> str:
        if TokenRange.parse(text).low < 1:
            raise ValueError(f'"{text}" asks for no tokens; expected 1 or more')
        return text

    def request(self, seed: int) -> LengthRequest:
        """What the rollouts of one problem in one step are asked for; equal seeds ask for equal lengths."""
        return LengthRequest(self.form, TokenRange.parse(self.lengths).draw(seed), self.penalty)


@dataclass(frozen=True)
class LengthRequest:
    """The request for `tokens` tokens, and its reward."""

    form: Form
    tokens: int
    penalty: float

    def prompt(self, question: str) -> str:
        """The user's message, in the words that sweeps ask in: they ask for t + s tokens, however the model splits
        them."""
        return STRATEGIES[f"l1_{self.form}"].prompt(question, Budget(0, self.tokens))

    def reward(self, score: float, length: int) -> float:
        """The reward of a response of `length` sampled tokens whose answer scores `score` in [0, 1]."""
        shaped = exact_reward if self.form == "exact" else max_reward
        return shaped(score, length, self.tokens, self.penalty)


def exact_reward(score: float, length: int, asked: int, penalty: float) -> float:
    """L1-Exact, equation 1: score - alpha |n - length|. A wrong answer of the right length earns 0."""
    return score - penalty * abs(asked - length)


def max_reward(score: float, length: int, asked: int, penalty: float) -> float:
    """L1-Max, equation 2: score * clip(alpha (n - length) + delta, 0, 1), delta = 0.5. A wrong answer earns nothing at
    any length."""
    return score * min(1.0, max(0.0, penalty * (asked - length) + _MAX_OFFSET))
