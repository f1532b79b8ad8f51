"""Variants of a strategy: how a cut is worded (its *closing*), and the effort that the chat template is given.

Both are part of a strategy's name, so that rows, figures and levels keep them apart: `separate_closing-soft`,
`separate_effort-low`, `unconstrained_effort-low`, `separate_closing-soft_effort-low`. A closing is

- `bare`: think-end alone, as in Elastic Reasoning. It has no name.
- a sentence before think-end: one of `SENTENCES`, or another one, which the name holds.
- `soft`, or `soft-K-topN`: in the last K tokens of the thought (a quarter of t, if K is left out) it is closed at the
  first place where think-end is among the N (3) most probable tokens, and at t in any case.

At t = 0 no thought is cut, and no closing differs from another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from elastic_core.budget import Budget
from elastic_core.errors import nearest
from elastic_core.models.marks import Soft
from elastic_core.models.special_tokens import Markers, encode
from elastic_core.strategies.base import CLOSES_ALL, FORCED_AT_T, KEEPS_PHASES, Rules, Strategy
from elastic_core.trajectory import ThinkFinish

BARE = "bare"
SENTENCES = {
    "answer-now": "Time is up. I answer now.",
    # What Qwen3's technical report (2025, section 4.7) writes.
    "qwen3": "Considering the limited time by the user, "
    "I have to give the solution based on the thinking directly now.",
}
_SOFT = re.compile(r"soft(?:-(\d+))?(?:-top(\d+))?")
_NAME = re.compile(r"(?P<base>[a-z0-9_]+?)(?:_closing-(?P<closing>.+?))?(?:_effort-(?P<effort>[\w.]+))?", re.DOTALL)
_RARE = ("_closing-", "_effort-", '"')


@dataclass(frozen=True)
class Closing:
    """How a cut is worded: a sentence before think-end, or a soft place for it."""

    sentence: str = ""
    soft: Soft | None = None

    @classmethod
    def parse(cls, name: str) -> Closing:
        """A ValueError on a name that is no closing."""
        if name == BARE:
            return cls()
        if found := _SOFT.fullmatch(name):
            window, most = (None if part is None else int(part) for part in found.groups())
            if window == 0 or most == 0:
                raise ValueError(f'"{name}" has no window or no token in it; expected 1 or more of both')
            return cls(soft=Soft(window, most or 3))
        sentence = SENTENCES.get(name, name)
        if " " not in sentence or any(part in sentence for part in _RARE):
            known = [BARE, "soft", *SENTENCES]
            raise ValueError(
                f'no closing "{name}"{nearest(name, known)}; expected {", ".join(known)}, soft-K-topN, or a sentence '
                "of two words or more, without quotation marks"
            )
        return cls(sentence)

    @property
    def text(self) -> str:
        """Text that is written before think-end."""
        return f"\n\n{self.sentence}\n" if self.sentence else ""

    def of(self, tokenizer: Any, markers: Markers) -> Markers:
        """The markers of a model whose thoughts are closed so. A ValueError on a sentence that its tokens do not give
        back, or a think-end that does not begin with a token of its own."""
        if self.soft is not None:
            if not set(markers.close[:1]) <= set(tokenizer.get_added_vocab().values()):
                raise ValueError("a soft closing needs a think-end that begins with a token of its own")
            return replace(markers, soft=self.soft)
        ids = encode(tokenizer, self.text)
        if (given_back := tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)) != self.text:
            raise ValueError(
                f"the closing {self.text!r} becomes {given_back!r} in the model's tokens; expected the same text"
            )
        return replace(markers, words=ids)

    def expected_budget(self, budget: Budget) -> str | None:
        """Words for the budget that it needs, as `Strategy.expected_budget`."""
        if self.soft is None:
            return None
        least = self.soft.window or 1
        fits = budget.think is None or budget.think == 0 or budget.think >= least
        return None if fits else f"a thinking budget of its window, {least} tokens, or more"


def variant_name(strategy: str, closing: str = BARE, effort: str | None = None) -> str:
    return strategy + (f"_closing-{closing}" if closing != BARE else "") + (f"_effort-{effort}" if effort else "")


def split_variant(name: str) -> tuple[str, str, str | None]:
    """Strategy, closing and effort of a name."""
    found = _NAME.fullmatch(name)
    if found is None or (found["closing"] is None and found["effort"] is None):
        return name, BARE, None
    return found["base"], found["closing"] or BARE, found["effort"]


def variant(strategy: Strategy, name: str, closing: str, effort: str | None) -> Strategy:
    """A strategy with a closing and an effort. A ValueError as `Closing.parse`, or where it cuts no thought so."""
    made = replace(strategy, purpose=None, effort=effort)
    if closing == BARE:
        return made
    if strategy.rules is not CLOSES_ALL or strategy.reads is not None or len(strategy.roles) == 1:
        raise ValueError(f'"{name}": closings are of the strategy separate alone')
    parsed = Closing.parse(closing)
    return replace(
        made,
        closing=parsed.of,
        expected_budget=parsed.expected_budget,
        rules=CLOSES_ALL if parsed.soft is None else _soft_rules(parsed.soft),
    )


def _soft_rules(soft: Soft) -> Rules:
    t, forced = pl.col("think_budget"), pl.col("think_finish") == ThinkFinish.FORCED
    within = pl.col("think_tokens") >= t - (t // 4 if soft.window is None else soft.window)
    rules = {name: rule for name, rule in CLOSES_ALL.items() if name in KEEPS_PHASES or name not in FORCED_AT_T}
    return rules | {"a thought is forced within the window": ~forced | within}


def expanded(strategies: Sequence[str], closings: Sequence[str], efforts: Sequence[str], served: str) -> list[str]:
    """Strategies, and after them their variants: the `served` one with every closing, and all with every effort. A
    ValueError on a closing that is none."""
    for closing in closings:
        Closing.parse(closing)
    plain = [name for name in strategies if split_variant(name)[0] == name]
    worded = [(served, each) for each in closings if served in plain]
    own = [*((name, BARE) for name in plain), *worded]
    return list(
        dict.fromkeys([*strategies, *(variant_name(*each, effort) for effort in (None, *efforts) for each in own)])
    )


def is_variant(served: str) -> pl.Expr:
    """Whether a row is of the `served` strategy, or of a variant of it."""
    return pl.col("strategy").eq(served) | pl.col("strategy").str.contains(f"^{served}_(closing|effort)-")
