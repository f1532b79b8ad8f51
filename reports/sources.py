"""What a report is made of: the table, what was asked for, and how its models were trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from elastic_core.budget import Budget, TrainingBudget
from elastic_core.data.problems import Problem
from elastic_core.sweep.grid import Cell
from elastic_core.trajectory import CELL


@dataclass(frozen=True)
class Training:
    """How a model of the table was trained, as far as its training left a record.

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


@dataclass(frozen=True)
class Asked:
    """What a sweep was asked for.

    Attributes:
        num_problems: of each benchmark.
        num_samples: per problem and cell.
        chosen: whether these are not all problems of the benchmarks.
    """

    cells: list[Cell]
    num_problems: Mapping[str, int]
    num_samples: int
    chosen: bool = False


@dataclass(frozen=True)
class ReportSources:
    """What a report is made of.

    Attributes:
        rows: the trajectory table (elastic_core.trajectory.SCHEMA) without problems that were not asked for; its models
            are named "base" and "trained" where the two are to be compared. It may be half done.
        trainings: of models of the table, by name.
        asked: the whole sweep; None where nobody knows.
        problems: by benchmark and id, as far as they are known.
        price: per million output tokens, in any currency; None leaves money out.
        provenance, documents, remarks: as in `ReportContent`.
    """

    rows: pl.LazyFrame
    trainings: Mapping[str, Training] = field(default_factory=dict)
    asked: Asked | None = None
    problems: Mapping[tuple[str, str], Problem] = field(default_factory=dict)
    price: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    documents: Mapping[str, Any] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)


def coverage(rows: pl.DataFrame, asked: Asked) -> str:
    """In one sentence: trajectories and cells, of those asked for. What is there beyond that does not count.

    Args:
        rows: of the trajectory table, of no other problems than were asked for.
    """
    counts = rows.filter(pl.col("sample") < asked.num_samples).group_by(CELL).len()
    there = {tuple(row[:-1]): row[-1] for row in counts.select(*CELL, "len").iter_rows()}
    wanted = {_key(cell): asked.num_problems[cell.benchmark] * asked.num_samples for cell in asked.cells}
    found = {key: min(there.get(key, 0), number) for key, number in wanted.items()}
    numbers = ", ".join(f"{num} of {name}" for name, num in asked.num_problems.items())
    of = f" It measures part of the problems, drawn by a hash of their names: {numbers}." if asked.chosen else ""
    done, total = sum(found.values()), sum(wanted.values())
    if done == total:
        return f"The sweep is complete: {total:,} trajectories in {len(wanted):,} cells.{of}"
    complete = sum(found[key] == number for key, number in wanted.items())
    empty = sum(number == 0 for number in found.values())
    return (
        f"The sweep is not complete: {done:,} of {total:,} trajectories ({100 * done / total:.0f} %) are there, "
        f"{complete:,} of {len(wanted):,} cells are complete and {empty:,} are empty.{of}"
    )


def _key(cell: Cell) -> tuple[str, str, str, int | None, int | None]:
    return cell.model, cell.benchmark, cell.strategy, cell.budget.think, cell.budget.solution
