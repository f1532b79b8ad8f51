"""How much of a sweep is there: the cells that were asked for, held against the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from elastic_core.sweep.grid import Cell


@dataclass(frozen=True)
class Asked:
    """What a sweep was asked for.

    Attributes:
        num_problems: of each benchmark.
        num_samples: per problem and cell.
    """

    cells: list[Cell]
    num_problems: Mapping[str, int]
    num_samples: int


def coverage(summary: pl.DataFrame, asked: Asked) -> str:
    """In one sentence: trajectories and cells, of those asked for. What is there beyond that does not count."""
    there = {tuple(row[:-1]): row[-1] for row in summary.select(*_KEY, "num_trajectories").iter_rows()}
    wanted = {_key(cell): asked.num_problems[cell.benchmark] * asked.num_samples for cell in asked.cells}
    found = {key: min(there.get(key, 0), number) for key, number in wanted.items()}
    done, total = sum(found.values()), sum(wanted.values())
    if done == total:
        return f"The sweep is complete: {total:,} trajectories in {len(wanted):,} cells."
    complete = sum(found[key] == number for key, number in wanted.items())
    empty = sum(number == 0 for number in found.values())
    return (
        f"The sweep is not complete: {done:,} of {total:,} trajectories ({100 * done / total:.0f} %) are there, "
        f"{complete:,} of {len(wanted):,} cells are complete and {empty:,} are empty."
    )


_KEY = ("model", "benchmark", "strategy", "think_budget", "solution_budget")


def _key(cell: Cell) -> tuple[str, str, str, int | None, int | None]:
    return cell.model, cell.benchmark, cell.strategy, cell.budget.think, cell.budget.solution
