"""How much of a sweep is there: the cells that were asked for, held against the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from elastic_core.sweep.grid import Cell
from elastic_core.trajectory import CELL


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
