"""How a model of the table was trained, as far as its training left a record."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from elastic_core.budget import Budget, TrainingBudget


@dataclass(frozen=True)
class Training:
    """One training.

    Attributes:
        budget: what rollouts were trained under.
        asks_length: whether prompts asked for a length, and rewards held it against them (L1).
        base: the name, in the table, of the model that it began with; None when that is not measured.
        metrics: columns step, name, value; None when no record is there.
    """

    budget: TrainingBudget
    asks_length: bool
    base: str | None
    metrics: pl.DataFrame | None

    @property
    def fixed_budget(self) -> Budget | None:
        """The one (t*, s*) that was trained under; None where it was drawn, or a length was asked for instead."""
        return None if self.asks_length else self.budget.fixed

    def idle(self, name: str) -> str:
        """A sentence when most steps of the training of `name` could teach nothing, else "": where all rollouts of a
        problem have the same reward, their advantages are 0."""
        if self.metrics is None:
            return ""
        groups, equal = (
            dict(self.metrics.filter(name=f"rollout/{each}").select("step", "value").iter_rows())
            for each in ("groups", "groups_without_variance")
        )
        idle = sum(equal.get(step) == count for step, count in groups.items())
        if 2 * idle <= len(groups):
            return ""
        return (
            f"In {idle} of {len(groups)} training steps of {name} nothing could be learned: all rollouts of every "
            "problem had the same reward."
        )

    @property
    def shown(self) -> str:
        """ "48+32", "24..144+32", "160+32, L1"."""
        return f"{self.budget}, L1" if self.asks_length else str(self.budget)
